"""The status of a plan: what is written of a decision, of the forecast and of what changed in it."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from upgrader.api.explicit import explicit
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import Blocker, Failure, ForecastSummary, Loss, PlanCounts, UpgradePlan
from upgrader.core import timing
from upgrader.core.explain import forecast_diff
from upgrader.core.explain.forecast_diff import Outlook
from upgrader.core.forecast.forecast import BatchForecast, Forecast
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, ends
from upgrader.core.upgrade_plan.plan_machine import UNDER_WAY, PlanDecision
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.observe.stopped_gangs import stops_to_remember
from upgrader.reconcile.runtime.context import Context, record
from upgrader.reconcile.upgrade_plan import ended_batches
from upgrader.reconcile.upgrade_plan.gpu_hours_lost import lost
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading
from upgrader.reconcile.upgrade_plan.plan_view import ended_for_good, interrupted, upgrade_facts
from upgrader.telemetry import metrics

WORST = 10
"""Blockers that the status shows; `upgrader plan` shows all."""


def render(context: Context, read: PlanReading, decision: PlanDecision) -> dict[str, Any]:
    """The status that follows from a decision; stored batches are the caller's."""
    plan, now = read.plan, timing.show(context.clock.now())
    status: dict[str, Any] = {
        "observedGeneration": plan.metadata.generation,
        "phase": decision.phase.value,
        "reason": decision.reason,
        "message": decision.message,
        "counts": explicit(_counts(read)),
        "stoppedOwners": stops_to_remember(plan, read.requests),
        "reservedNodes": sorted(read.reserved),
        "ignoredRequests": own_requests.shown(read.ignored),
        "failures": [
            msgspec.to_builtins(Failure(subject=one.subject, reason=one.reason, message=one.message))
            for one in decision.failures
        ],
    }
    if read.forecast is not None:
        status["blockers"] = _blockers(read)
        status["forecast"] = _summary(read.forecast, context.clock.now(), started=decision.start_batch)
        if plan.status.phase in UNDER_WAY and (news := _news(read, status)):
            status["changed"] = f"{now}: {news}"
    if decision.soak_until is not None:
        status["soakUntil"] = timing.show(decision.soak_until)
    predicted = plan.status.lost_gpu_hours.predicted
    if plan.status.phase is PlanPhase.PROPOSED and decision.phase is PlanPhase.RUNNING:
        predicted = read.forecast.prediction.lost_gpu_hours if read.forecast is not None else 0.0
        status["startedAt"] = now
        status["stackRevision"] = read.stack.status.update_revision if read.stack is not None else None
    elif read.stack is not None and read.stack.status.update_revision == plan.spec.target_revision:
        status["stackRevision"] = plan.spec.target_revision  # from here on, leaving it is another wish
    cost = lost(plan, read.upgrades, read.requests)
    status["lostGpuHours"] = explicit(Loss(predicted=round(predicted, 2), actual=round(cost, 2)))
    if ends(decision.phase) and not ends(plan.status.phase):
        status["endedAt"] = now
    if decision.end_batch:
        status |= ended_batches.fold(plan, read.upgrades, now, lost=cost, terminated=ended_for_good(read))
    return status


def _summary(made: Forecast, now: datetime, *, started: bool) -> dict[str, Any]:
    """What is still to come; a batch that is being `started` is no part of it. Unknown times are said to be so."""
    first = made.batches[0] if made.batches else None
    gone = first if started else None
    starts = first.starts_at if first is not None and first.starts_at is not None and first.starts_at > now else None
    prediction = made.prediction
    summary = ForecastSummary(
        batches=made.summary.batches - (gone is not None),
        nodes=made.summary.nodes - (len(gone.nodes) if gone is not None else 0),
        interruptions=made.summary.interruptions - (_stops(gone) if gone is not None else 0),
        blocked=made.summary.blocked,
        waiting_for_completion=sum(len(one.nodes) for one in made.completions),
        waits_for=first.waits_for if first is not None and starts is not None else "",
        lost_gpu_hours=round(prediction.lost_gpu_hours, 2),
    )
    times = {"nextStartsAt": starts, "finishP50": prediction.finish_p50, "finishP95": prediction.finish_p95}
    return explicit(summary) | {name: _minute(at) for name, at in times.items()}


def _stops(batch: BatchForecast) -> int:
    return sum(len(one.gangs) for one in batch.groups)


def _minute(at: datetime | None) -> str | None:
    # In whole minutes, up: a status that moves with every second would be written every second.
    if at is None:
        return None
    over = timedelta(seconds=at.second, microseconds=at.microsecond)
    return timing.show(at - over + timedelta(minutes=1) if over else at)


def _news(read: PlanReading, status: Mapping[str, Any]) -> str:
    """What the forecast says otherwise than the one that the status speaks of."""
    before, made = read.plan.status, read.forecast
    if made is None:
        return ""
    blocked = frozenset((one["subject"], one["reason"]) for one in status["blockers"])
    return forecast_diff.changes(
        Outlook(
            nodes=before.forecast.nodes + before.forecast.waiting_for_completion,
            interruptions=before.forecast.interruptions,
            blocked=before.forecast.blocked,
            blockers=frozenset((one.subject, one.reason) for one in before.blockers),
        ),
        Outlook(
            nodes=made.summary.nodes + sum(len(one.nodes) for one in made.completions),
            interruptions=made.summary.interruptions,
            blocked=made.summary.blocked,
            blockers=blocked,
        ),
    )


def _blockers(read: PlanReading) -> list[dict[str, Any]]:
    if read.forecast is None:
        return []
    metrics.show_blockers(read.plan.metadata.name, Counter(blocker.reason.value for blocker in read.forecast.blockers))
    cooling = [
        Blocker(
            subject=node, reason="RetriedLater", message="its upgrade group was let go and is left alone for a while"
        )
        for node in sorted(read.cooling)
    ]
    worst = sorted(read.forecast.blockers, key=lambda blocker: -len(blocker.nodes))
    shown = [Blocker(subject=one.subject, reason=one.reason.value, message=one.message) for one in worst]
    return [msgspec.to_builtins(one) for one in (*shown, *cooling)[:WORST]]


def _counts(read: PlanReading) -> PlanCounts:
    latest = {one.node: one for one in sorted(upgrade_facts(read.upgrades), key=lambda one: one.batch)}
    still = {one.node for one in read.forecast.drift if one.drifted} if read.forecast is not None else set()
    done = sum(one.phase is NodePhase.SUCCEEDED for one in latest.values())
    return PlanCounts(
        nodes=max(read.plan.status.counts.nodes, len(latest.keys() | still)),
        succeeded=done,
        failed=sum(one.phase is NodePhase.FAILED for one in latest.values()),
        interruptions=interrupted(read),
        restored=max(
            read.plan.status.counts.restored,  # requests can be removed by force
            sum(one.status.phase is RequestPhase.RESTORED for one in read.requests),
        ),
    )


async def write(context: Context, read: PlanReading, decision: PlanDecision) -> UpgradePlan:
    """Write the plan's status where it says something new; the plan as it is afterwards."""
    plan = read.plan
    status = render(context, read, decision)
    present = explicit(plan.status)
    if all(_same(present.get(key), value) for key, value in status.items()):
        return plan
    written: UpgradePlan = await record(
        context, UPGRADE_PLANS, plan.metadata, status, left=plan.status.phase, entered=decision.phase
    )
    if decision.phase is not plan.status.phase:
        await _tell(context, plan, decision)
    return written


def _same(before: object, after: object) -> bool:
    # Unset fields are left out on the wire: an empty list, an empty object and nothing are the same.
    if isinstance(after, dict):
        after = {name: value for name, value in after.items() if value is not None}
    return before == after or (not before and not after)


async def _tell(context: Context, plan: UpgradePlan, decision: PlanDecision) -> None:
    meta = ObjectMeta(name=plan.metadata.name, uid=plan.metadata.uid)
    await context.cluster.event(
        meta,
        UPGRADE_PLANS.kind,
        UPGRADE_PLANS.api_version,
        reason=f"Plan{decision.phase.value}",
        message=decision.message,
        warning=decision.phase in {PlanPhase.FAILED, PlanPhase.PAUSED},
    )
