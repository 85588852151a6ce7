"""The record of one step of a CheckpointRequest: its status, and Events on the owner of the gang."""

from datetime import datetime
from typing import Any

import msgspec

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import timing
from upgrader.core.checkpoint_request.acknowledgements import AckVerdict
from upgrader.core.checkpoint_request.request_machine import RESTARTED_EARLY
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision
from upgrader.core.errors import UpgraderError
from upgrader.core.model.phases import RequestPhase, is_final, transition_of
from upgrader.core.node_upgrade.upgrade_state import NO_ANSWER, REFUSAL
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest
from upgrader.reconcile.runtime.context import Context, record_status
from upgrader.telemetry import metrics

_R = RequestPhase
_BY_GROUP = frozenset({_R.REQUESTED, _R.PARKED, _R.EXPIRED})
"""Phases that end at the deadline of the whole group."""


def status_of(
    context: Context, live: LiveRequest, decision: GangDecision, ask_until: str | None, stop_seconds: int
) -> dict[str, Any]:
    """The status patch of a decision; empty if nothing changes. `stop_seconds`: how long the gang may stay stopped."""
    before = live.request.status
    if decision.admitted:
        turn = timing.format_time(context.clock.now())
        return {"admittedAt": turn, "reason": decision.reason, "message": decision.message}
    if GangAct.REQUEST in decision.acts and live.view.misses:  # this time the request reached all members
        return {"reason": decision.reason, "message": decision.message, "missed": []}
    if decision.phase is before.phase:
        if (decision.reason, decision.message) == (before.reason, before.message) or not decision.message:
            return {}
        return {"reason": decision.reason, "message": decision.message}
    now = context.clock.now()
    status: dict[str, Any] = {
        "phase": decision.phase.value,
        "reason": decision.reason,
        "message": decision.message,
        "deadline": _phase_deadline(decision.phase, now, ask_until, stop_seconds),
    }
    match decision.phase:
        case _R.PARKED:
            status["acks"] = [msgspec.to_builtins(answer) for answer in live.view.answers]
            status["acknowledgedStep"] = decision.step
        case _R.STOPPING:
            status["stoppedAt"] = timing.format_time(now)
            status["restartBy"] = timing.format_time(timing.add_seconds(now, stop_seconds))
            status["terminated"] = decision.reason == AckVerdict.EXPENDABLE.value
        case _R.RESTARTING:
            status["restartedAt"] = timing.format_time(now)
            status["restartedEarly"] = decision.reason == RESTARTED_EARLY
        case _R.RESTORED:
            status["restoredAt"] = timing.format_time(now)
            status["progress"] = [step for step in live.view.progress if step is not None]
        case _R.WITHDRAWN if before.stopped_at is not None:
            # The stop was only intended: the gang was not interrupted.
            status |= {"stoppedAt": None, "restartBy": None, "terminated": None}
        case _R.WITHDRAWN if decision.reason == AckVerdict.REFUSED.value:
            status |= {"refusedAt": timing.format_time(now), "retryAfterSeconds": decision.retry_after_seconds}
        case _R.REQUESTED | _R.STOPPED | _R.EXPIRED | _R.WITHDRAWN | _R.ENDED:
            pass
    since = _phase_start(live.request, stop_seconds)
    metrics.PHASE_SECONDS.labels("CheckpointRequest", live.view.phase.value).observe((now - since).total_seconds())
    return status | _idle_times(live, decision.phase, now)


async def record_refusal(context: Context, request: CheckpointRequest, error: UpgraderError) -> None:
    """Record an error of the API server in the request; the next step retries."""
    status = {"reason": REFUSAL if error.refused else NO_ANSWER, "message": str(error)}
    if (request.status.reason, request.status.message) != (status["reason"], status["message"]):
        await record_status(context, CHECKPOINT_REQUESTS, request.metadata, status)


async def emit_event(context: Context, live: LiveRequest, decision: GangDecision) -> None:
    """Emit an Event on the owner, so that its user learns why the job was stopped, and that it was restored."""
    if decision.phase is live.view.phase or live.owner.body is None:
        return
    plan, step = live.request.spec.plan, live.view.acknowledged_step
    terminated = live.request.status.terminated
    where = "without an acknowledgement, as its approval allows" if terminated else f"at step {step}"
    texts = {
        _R.STOPPED: ("StoppedForUpgrade", f"stopped for plan {plan} {where}"),
        _R.RESTARTING: (
            "RestartedAfterUpgrade",
            f"restarted by plan {plan}{'' if terminated else f' from step {step}'}",
        ),
        _R.RESTORED: (
            "RestoredAfterUpgrade",
            f"{'runs' if terminated else f'is past step {step}'} again after plan {plan}",
        ),
        _R.WITHDRAWN: ("CheckpointWithdrawn", decision.message),
        _R.ENDED: ("RequestEnded", decision.message),
    }
    if decision.phase in texts:
        reason, message = texts[decision.phase]
        whole, resource = live.owner.meta, live.owner.resource
        await context.cluster.event(
            ObjectMeta(name=whole.name, namespace=whole.namespace, uid=whole.uid),
            resource.kind,
            resource.api_version,
            reason=reason,
            message=message,
            warning=decision.phase is _R.ENDED,
        )


def _idle_times(live: LiveRequest, phase: RequestPhase, now: datetime) -> dict[str, Any]:
    """The times from which the loss of a gang is computed: when it stopped training, and when that ended."""
    before, parked = live.request.status, [answer.parked for answer in live.view.answers]
    if phase is _R.PARKED and parked and all(parked):
        return {"parkedAt": timing.format_time(now)}
    # A gang with one parked member does not train.
    stood = before.parked_at is not None or (live.view.phase is _R.REQUESTED and any(parked))
    if phase is _R.WITHDRAWN and stood and before.parked_at is None:
        return {"parkedAt": timing.format_time(now), "endedAt": timing.format_time(now)}
    if phase is _R.EXPIRED and stood:
        kept = (now - live.view.asked_since).total_seconds()
        return {"parkedAt": None, "parkedSeconds": before.parked_seconds + max(0, round(kept))}
    return {"endedAt": timing.format_time(now)} if is_final(phase) else {}


def _phase_start(request: CheckpointRequest, stop_seconds: int) -> datetime:
    """When the present phase began: derived from its own deadline, else the time of the request."""
    phase, deadline, seconds = (
        request.status.phase,
        request.status.deadline,
        _phase_seconds(request.status.phase, stop_seconds),
    )
    if phase in _BY_GROUP or deadline is None or seconds is None:
        return timing.parse_time(request.spec.asked_at)
    return timing.add_seconds(timing.parse_time(deadline), -seconds)


def _phase_seconds(phase: RequestPhase, stop_seconds: int) -> int | None:
    return stop_seconds if phase is _R.STOPPED else transition_of(phase).seconds


def _phase_deadline(phase: RequestPhase, now: datetime, ask_until: str | None, stop_seconds: int) -> str | None:
    if phase in _BY_GROUP and ask_until is not None:
        return ask_until
    seconds = _phase_seconds(phase, stop_seconds)
    return None if is_final(phase) or seconds is None else timing.format_time(timing.add_seconds(now, seconds))
