"""Why pods of ours do not run whose status is silent: what Events say of them. The one place where Events are read.

Of volumes and networks a kubelet tells in Events only, and so does a controller whose pods the API server refuses.
Nothing is decided by it, so an API server that does not let us look is no reason to block.
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
"""The id of a sandbox, another one with each try: with it a status would be written anew for each."""
_AGAIN = "(combined from similar events): "
_REFUSED = "Error creating: "
_USED = re.compile(r"\bused: .*?, limited: ")
"""Of a quota: with it a status would be written anew whenever a pod comes or goes in its namespace."""
STILL = timedelta(minutes=20)
"""A refusal is told for so long: controllers try again after a quarter of an hour at the latest."""
_LONGEST = 300
_GENERATED = 58
"""How much of a maker's name, with its hyphen, the API server keeps in the names of its pods; five letters follow."""


async def explained(context: Context, pods: Iterable[P]) -> list[P]:
    """The pods, and those that should be there, with what Events say of such as have been silent for long."""
    found, now = list(pods), context.clock.now()
    asked = chosen(((one.node, one.silence) for one in found), now, SHOWN)
    return [await _explained(context, one, asked) for one in found]


async def of_pod(context: Context, pod_result: PodResult, what: str, *, listening: bool) -> PodResult:
    """One of our pods of an upgrade, with why it does not start; `listening`: its node is Ready, so its kubelet speaks.

    While nothing is said its images may still be pulled, so no more is known than before.
    """
    silence = pod_result.silence
    if pod_result.trouble or silence is None or not long_silent(silence, context.clock.now()):
        return pod_result
    if not (listening or silence.maker):
        return pod_result
    said = await _clause(context, silence)
    if not said:
        return pod_result
    trouble = f"no pod of {what} is there; {said}" if silence.maker else f"{what} has not started; {said}"
    return msgspec.structs.replace(pod_result, trouble=trouble)


async def _explained(context: Context, pod: P, asked: Collection[str]) -> P:
    if pod.silence is None or pod.silence.key not in asked:
        return pod
    said = await _clause(context, pod.silence)
    if pod.silence.maker:
        trouble = f"{NO_POD}; {said}" if said else NO_POD
    elif said is None:
        trouble = "it has not started"
    else:
        trouble = f"it has not started; {said}" if said else "it has not started, and its kubelet has not said why"
    return msgspec.structs.replace(pod, trouble=trouble)


async def _clause(context: Context, silence: Silence) -> str | None:
    """Who says what; empty where nobody says anything, None where nobody was asked yet."""
    memory, now = context.heard, context.clock.now()
    if not memory.due(silence.key, now):
        return memory.of(silence.key)
    try:
        said = await _asked(context, silence)
    except ClusterError as error:  # whatever it is: no step of a node upgrade or a stack waits for an explanation
        before = None if error.refused else memory.of(silence.key)
        said = f"why is not known, since Events cannot be read: {error.brief}" if before is None else before
    memory.keep(silence.key, said, now)
    return said


async def _asked(context: Context, silence: Silence) -> str:
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
        return _newest(events)
    now = context.clock.now()
    return _refusal([one for one in events if _since(one, now) < STILL], silence.maker)


def _since(event: Event, now: datetime) -> timedelta:
    """How long ago something was said; at a time that cannot be read: too long ago to count."""
    at = untrusted.instant(event.last_said)
    return now - at if at is not None else STILL


def _newest(events: Sequence[Event]) -> str:
    """What was said first of all that is new: a fault that is told of again and again changes no word."""
    last = max(events, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name), default=None)
    if last is None:
        return ""
    return f"its kubelet says {last.reason}: {shortened(_ONE_TRY.sub('…', last.message.removeprefix(_AGAIN)))}"


def _refusal(events: Sequence[Event], maker: str) -> str:
    """The API server's words, without what is another with each try; they say first what matters."""
    last = max(events, key=lambda one: (one.last_said, one.metadata.name), default=None)
    if last is None:
        return ""
    prefix = f"{maker}-"[:_GENERATED]
    text = re.sub(rf"{re.escape(prefix)}[a-z0-9]{{5}}\b", f"{prefix}…", last.message.removeprefix(_AGAIN))
    flat = _USED.sub("used: …, limited: ", " ".join(text.removeprefix(_REFUSED).split()))
    words = flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"
    return f"the API server refuses to make one: {words}"
