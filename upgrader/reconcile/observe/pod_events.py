"""Reasons, from Events, why the operator's own pods do not run. Events are read only here, one function per question.

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
from upgrader.core.model.operands import SHOWN, PartPod
from upgrader.core.model.pod_diagnostics import Silence, choose_silences, long_silent
from upgrader.core.node_upgrade.upgrade_state import PodResult
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.node_pods.pod_results import shorten_message

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
    asked = choose_silences(((pod.node, pod.silence) for pod in listed), now, SHOWN)
    return [await _explain_pod(context, pod, asked) for pod in listed]


async def explain_pod_result(context: Context, pod_result: PodResult, what: str, *, listening: bool) -> PodResult:
    """A pod of an upgrade, with the reason why it does not start; `listening`: its node is Ready.

    Without an Event its images may still be pulled, so the result is unchanged.
    """
    silence = pod_result.silence
    if pod_result.trouble or silence is None or not long_silent(silence, context.clock.now()):
        return pod_result
    explanation = await _explanation_clause(context, silence) if listening or silence.maker else ""
    if not explanation:
        return pod_result
    return msgspec.structs.replace(pod_result, trouble=_trouble_of(what, silence, explanation))


async def _explain_pod(context: Context, pod: P, asked: Collection[str]) -> P:
    if pod.silence is None or pod.silence.key not in asked:
        return pod
    explanation = await _explanation_clause(context, pod.silence)
    trouble = _trouble_of("it", pod.silence, explanation or "")
    if explanation == "" and not pod.silence.maker:
        trouble += ", and its kubelet has reported no reason"
    return msgspec.structs.replace(pod, trouble=trouble)


def _trouble_of(what: str, silence: Silence, explanation: str) -> str:
    state = f"{what} has no pod" if silence.maker else f"{what} has not started"
    return f"{state}; {explanation}" if explanation else state


async def _explanation_clause(context: Context, silence: Silence) -> str | None:
    """The source and its message; empty if there is no Event, None if Events were not read yet."""
    memory, now = context.heard, context.clock.now()
    if not memory.is_due(silence.key, now):
        return memory.message_of(silence.key)
    try:
        reading = _creation_refusal(context, silence) if silence.maker else _newest_warning(context, silence.uid)
        explanation = await reading
    except ClusterError as error:  # of any kind: no step of a node upgrade or a stack waits for an explanation
        before = None if error.refused else memory.message_of(silence.key)
        explanation = (
            f"the reason is not known, since Events cannot be read: {error.brief}" if before is None else before
        )
    memory.keep_message(silence.key, explanation, now)
    return explanation


async def _list_warnings(context: Context, uid: str, reason: str = "") -> Sequence[Event]:
    fields = f"involvedObject.uid={uid},type=Warning{reason and f',reason={reason}'}"
    return await context.cluster.list(EVENTS, context.stack.namespace, fields=fields)


async def _newest_warning(context: Context, uid: str) -> str:
    """Why a pod does not start, as its kubelet reports it; empty if it reports nothing.

    The Event that was created last counts: a repeated Event keeps its creation time, so the text stays the same.
    """
    events = await _list_warnings(context, uid)
    last = max(events, key=lambda event: (event.metadata.creation_timestamp, event.metadata.name), default=None)
    if last is None:
        return ""
    return f"its kubelet reports {last.reason}: {shorten_message(_ONE_TRY.sub('…', last.message.removeprefix(_AGAIN)))}"


async def _creation_refusal(context: Context, silence: Silence) -> str:
    """Why a Job or a DaemonSet creates no pod: the API server's latest refusal; empty if there is no recent one."""
    uid, now = silence.uid, context.clock.now()
    if not uid:
        maker = await context.cluster.get(DAEMONSETS, silence.maker, context.stack.namespace)
        if maker is None:
            return f"its DaemonSet {silence.maker} does not exist"
        uid = maker.metadata.uid
    events = await _list_warnings(context, uid, "FailedCreate")
    recent = [event for event in events if _event_age(event, now) < STILL]
    last = max(recent, key=lambda event: (event.last_time, event.metadata.name), default=None)
    return f"the API server refuses to create a pod: {_refusal_text(last, silence.maker)}" if last is not None else ""


def _event_age(event: Event, now: datetime) -> timedelta:
    """The age of an Event; an unreadable time gives an age beyond the limit."""
    at = untrusted.parse_instant(event.last_time)
    return now - at if at is not None else STILL


def _refusal_text(last: Event, maker: str) -> str:
    """The message of a refusal, shortened at its end, without parts that change with each attempt."""
    prefix = f"{maker}-"[:_GENERATED]
    text = re.sub(rf"{re.escape(prefix)}[a-z0-9]{{5}}\b", f"{prefix}…", last.message.removeprefix(_AGAIN))
    flat = _USED.sub("used: …, limited: ", " ".join(text.removeprefix(_REFUSED).split()))
    return flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"
