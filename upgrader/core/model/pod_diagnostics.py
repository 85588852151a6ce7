"""Pods of the operator whose status does not state why they do not run: the objects whose Events are read. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

SILENT = timedelta(seconds=30)
"""A pod that is starting is silent too; after this long its Events are read."""


class Silence(Struct, frozen=True, kw_only=True):
    """Since when a pod is silent, and the object whose Events may state why.

    That is the pod by its uid, or, if there is no pod, the Job or DaemonSet that should create it: `maker` is its name,
    and its uid may not be known yet.
    """

    since: datetime
    uid: str = ""
    maker: str = ""

    @property
    def key(self) -> str:
        """The key under which it is stored."""
        return self.uid or self.maker


def long_silent(silence: Silence | None, now: datetime) -> bool:
    """Whether its Events are to be read."""
    return silence is not None and now - silence.since >= SILENT


def choose_silences(silences: Iterable[tuple[str, Silence | None]], now: datetime, count: int) -> set[str]:
    """Keys of silences whose Events are read, from silences with their nodes.

    Of pods the first by node, as many as a message names, so that the cost is bounded in a fleet where no pod starts.
    An object that creates no pods is the same for many nodes, so that all of these are read.
    """
    long = [(node, silence) for node, silence in silences if silence is not None and long_silent(silence, now)]
    pods = sorted((node, silence.key) for node, silence in long if not silence.maker)[:count]
    return {key for _, key in pods} | {silence.key for _, silence in long if silence.maker}
