"""Pods of ours whose status says nothing of why they do not run: of what else that is asked, and when. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

SILENT = timedelta(seconds=30)
"""A pod that is only starting is silent too; one that is for so long is asked about."""


class Silence(Struct, frozen=True, kw_only=True):
    """Since when nothing is said, and of which object Events may say more.

    That is the pod itself by its uid, or, where there is no pod, the Job or DaemonSet that should make it: `maker` is
    its name, and its uid may not be known yet.
    """

    since: datetime
    uid: str = ""
    maker: str = ""

    @property
    def key(self) -> str:
        """What it is remembered by."""
        return self.uid or self.maker


def long_silent(silence: Silence | None, now: datetime) -> bool:
    """Whether it is to be asked about."""
    return silence is not None and now - silence.since >= SILENT


def chosen(silences: Iterable[tuple[str, Silence | None]], now: datetime, count: int) -> set[str]:
    """Keys of those that are asked about, of silences with their nodes.

    Of pods the first by node, as many as a message names, so that looking costs no more in a fleet where nothing
    starts. What makes no pods is the same object for many nodes, so all of these.
    """
    found = [(node, one) for node, one in silences if one is not None and long_silent(one, now)]
    pods = sorted((node, one.key) for node, one in found if not one.maker)[:count]
    return {key for _, key in pods} | {one.key for _, one in found if one.maker}
