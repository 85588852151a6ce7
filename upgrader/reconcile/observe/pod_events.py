"""Reasons, from Events, why the operator's own pods do not run. Events are read only here.

A kubelet reports faults of volumes and networks in Events only, and so does a controller whose pods the API server
refuses. No decision depends on Events, so a missing right to read them blocks nothing.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from upgrader.api.kubernetes import Event
from upgrader.api.resources import DAEMONSETS, EVENTS
from upgrader.core import untrusted
from upgrader.core.errors import ClusterError
from upgrader.core.model.operands import NO_POD, SHOWN, PartPod
from upgrader.core.model.pod_diagnostics import Silence, chosen, long_silent
from upgrader.core.node_upgrade.upgrade_state import PodResult
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.pod_results import shortened

P = TypeVar("P", bound=PartPod)

_ONE_TRY = re.compile(r"\b[0-9a-f]{32,}\b")
"""The id of a sandbox, which changes with each attempt: it would cause a status write for each."""
_AGAIN = "(combined from similar events): "
_REFUSED = "Error creating: "
_USED = re.compile(r"\bused: .*?, limited: ")
"""Usage of a quota: it would cause a status write whenever a pod of its namespace is created or deleted."""
STILL = timedelta(minutes=20)
"""Age up to which a refusal is shown: controllers retry after a quarter of an hour at the latest."""
_LONGEST = 300
_GENERATED = 58
"""Characters of a controller's name, with its hyphen, in the names of its pods; five random letters follow."""


async def explain_pods(context: Context, pods: Iterable[P]) -> list[P]:
    """Existing and missing pods, with the reasons from Events of those that have been silent for long."""
    listed, now = list(pods), context.clock.now()
    asked = chosen(((pod.node, pod.silence) for pod in listed), now, SHOWN)
    return [await _explain_pod(context, pod, asked) for pod in listed]


async def explain_pod_result(context: Context, pod_result: PodResult, what: str, *, listening: bool) -> PodResult:
    """A pod of an upgrade, with the reason why it does not start; `listening`: its node is Ready.

    Without an Event its images may still be pulled, so the result is unchanged.
    """
    silence = pod_result.silence
    if pod_result.trouble or silence is None or not long_silent(silence, context.clock.now()):
        return pod_result
    if not (listening or silence.maker):
        return pod_result
    said = await _explanation_clause(context, silence)
    if not said:
        return pod_result
    trouble = f"no pod of {what} is there; {said}" if silence.maker else f"{what} has not started; {said}"
    return msgspec.structs.replace(pod_result, trouble=trouble)


async def _explain_pod(context: Context, pod: P, asked: Collection[str]) -> P:
    if pod.silence is None or pod.silence.key not in asked:
        return pod
    said = await _explanation_clause(context, pod.silence)
    if pod.silence.maker:
        trouble = f"{NO_POD}; {said}" if said else NO_POD
    elif said is None:
        trouble = "it has not started"
    else:
        trouble = f"it has not started; {said}" if said else "it has not started, and its kubelet has not said why"
    return msgspec.structs.replace(pod, trouble=trouble)


async def _explanation_clause(context: Context, silence: Silence) -> str | None:
    """The source and its message; empty if there is no Event, None if Events were not read yet."""
    memory, now = context.heard, context.clock.now()
    if not memory.due(silence.key, now):
        return memory.of(silence.key)
    try:
        said = await _read_events(context, silence)
    except ClusterError as error:  # of any kind: no step of a node upgrade or a stack waits for an explanation
        before = None if error.refused else memory.of(silence.key)
        said = f"why is not known, since Events cannot be read: {error.brief}" if before is None else before
    memory.keep(silence.key, said, now)
    return said


async def _read_events(context: Context, silence: Silence) -> str:
    namespace, uid, reason = context.stack.namespace, silence.uid, ""
    if silence.maker:
        reason = ",reason=FailedCreate"
    if silence.maker and not uid:
        maker = await context.cluster.get(DAEMONSETS, silence.maker, namespace)
        if maker is None:
            return f"its DaemonSet {silence.maker} is not there"
        uid = maker.metadata.uid
    events = await context.cluster.list(EVENTS, namespace, fields=f"involvedObject.uid={uid},type=Warning{reason}")
    if not silence.maker:
        return _newest_warning(events)
    now = context.clock.now()
    return _creation_refusal([event for event in events if _event_age(event, now) < STILL], silence.maker)


def _event_age(event: Event, now: datetime) -> timedelta:
    """The age of an Event; an unreadable time gives an age beyond the limit."""
    at = untrusted.instant(event.last_said)
    return now - at if at is not None else STILL


def _newest_warning(events: Sequence[Event]) -> str:
    """The Event that was created last; a repeated Event keeps its creation time, so the text stays the same."""
    last = max(events, key=lambda event: (event.metadata.creation_timestamp, event.metadata.name), default=None)
    if last is None:
        return ""
    return f"its kubelet says {last.reason}: {shortened(_ONE_TRY.sub('…', last.message.removeprefix(_AGAIN)))}"


def _creation_refusal(events: Sequence[Event], maker: str) -> str:
    """The API server's refusal, shortened at its end, without parts that change with each attempt."""
    last = max(events, key=lambda event: (event.last_said, event.metadata.name), default=None)
    if last is None:
        return ""
    prefix = f"{maker}-"[:_GENERATED]
    text = re.sub(rf"{re.escape(prefix)}[a-z0-9]{{5}}\b", f"{prefix}…", last.message.removeprefix(_AGAIN))
    flat = _USED.sub("used: …, limited: ", " ".join(text.removeprefix(_REFUSED).split()))
    words = flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"
    return f"the API server refuses to make one: {words}"
