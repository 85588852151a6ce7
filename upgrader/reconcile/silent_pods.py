"""Why pods do not start whose status is silent: of volumes and networks the kubelet tells in Events only."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from upgrader.api.kubernetes import Event
from upgrader.api.resources import EVENTS
from upgrader.core.errors import ClusterError
from upgrader.core.operands import PartPod, unexplained
from upgrader.reconcile.context import Context
from upgrader.stack.errands import shortened

P = TypeVar("P", bound=PartPod)

NOTHING_SAID = "it has not started, and its kubelet has not said why"
_ONE_TRY = re.compile(r"\b[0-9a-f]{32,}\b")
"""The id of a sandbox, another one with each try: with it a status would be written anew for each."""
_AGAIN = "(combined from similar events): "


async def explained(context: Context, pods: Iterable[P]) -> list[P]:
    """The pods with what Events say of those that have been silent for long; a few of them, and only of such.

    Nothing is decided by it, so an API server that does not let us look is no reason to hold.

    Raises:
        ClusterError: the API server did not answer; the step is made again.
    """
    found = list(pods)
    said = {one.uid: await _said(context, one.uid) for one in unexplained(found, context.clock.now())}
    return [_with(one, said) for one in found]


def _with(pod: P, said: Mapping[str, str]) -> P:
    return msgspec.structs.replace(pod, trouble=said[pod.uid]) if pod.uid in said else pod


async def _said(context: Context, uid: str) -> str:
    fields = f"involvedObject.uid={uid},type=Warning"
    try:
        events = await context.cluster.list(EVENTS, context.stack.namespace, fields=fields)
    except ClusterError as error:
        if not error.refused:
            raise
        return f"it has not started; why is not known, since Events cannot be read: {error.brief}"
    return _newest(events)


def _newest(events: Sequence[Event]) -> str:
    """What was said first of all that is new: a fault that is told of again and again changes no word."""
    if not events:
        return NOTHING_SAID
    last = max(events, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name))
    text = _ONE_TRY.sub("…", last.message.removeprefix(_AGAIN))
    return f"it has not started; its kubelet says {last.reason}: {shortened(text)}"
