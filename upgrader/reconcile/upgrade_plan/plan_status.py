"""The status of a plan: phase, counts, forecast, and changes of the forecast."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from upgrader.api.explicit import explicit_json
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import BlockerStatus, Failure, ForecastSummary, Loss, PlanCounts, UpgradePlan
from upgrader.core import timing
from upgrader.core.explain import forecast_diff
from upgrader.core.explain.forecast_diff import Outlook
from upgrader.core.forecast.forecast import BatchForecast, Forecast
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, is_final
from upgrader.core.upgrade_plan.plan_machine import UNDER_WAY, PlanDecision
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.observe.stopped_gangs import stops_to_remember
from upgrader.reconcile.runtime.context import Context, record_status
from upgrader.reconcile.upgrade_plan import ended_batches
from upgrader.reconcile.upgrade_plan.gpu_hours_lost import total_gpu_hours_lost
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading
from upgrader.reconcile.upgrade_plan.plan_view import count_interruptions, count_terminated_gangs, upgrade_facts
from upgrader.telemetry import metrics

WORST = 10
"""Number of blockers in the status; `upgrader plan` shows all."""


def render_status(context: Context, read: PlanReading, decision: PlanDecision) -> dict[str, Any]:
    """The status that follows from a decision; the caller adds stored batches."""
    plan, now = read.plan, timing.format_time(context.clock.now())
    status: dict[str, Any] = {
        "observedGeneration": plan.metadata.generation,
        "phase": decision.phase.value,
        "reason": decision.reason,
        "message": decision.message,
        "counts": explicit_json(_plan_counts(read)),
        "stoppedOwners": stops_to_remember(plan, read.requests),
        "reservedNodes": sorted(read.reserved),
        "ignoredRequests": own_requests.shown_names(read.ignored),
        "failures": [
            msgspec.to_builtins(Failure(subject=failure.subject, reason=failure.reason, message=failure.message))
            for failure in decision.failures
        ],
    }
    if read.forecast is not None:
        status["blockers"] = _status_blockers(read)
        status["forecast"] = _forecast_summary(read.forecast, context.clock.now(), started=decision.start_batch)
        if plan.status.phase in UNDER_WAY and (news := _forecast_changes(read, status)):
            status["changed"] = f"{now}: {news}"
    if decision.soak_until is not None:
        status["soakUntil"] = timing.format_time(decision.soak_until)
    predicted = plan.status.lost_gpu_hours.predicted
    if plan.status.phase is PlanPhase.PROPOSED and decision.phase is PlanPhase.RUNNING:
        predicted = read.forecast.prediction.lost_gpu_hours if read.forecast is not None else 0.0
        status["startedAt"] = now
        status["stackRevision"] = read.stack.status.update_revision if read.stack is not None else None
    elif read.stack is not None and read.stack.status.update_revision == plan.spec.target_revision:
        status["stackRevision"] = plan.spec.target_revision  # a later change of it is another wish
    cost = total_gpu_hours_lost(plan, read.upgrades, read.requests)
    status["lostGpuHours"] = explicit_json(Loss(predicted=round(predicted, 2), actual=round(cost, 2)))
    if is_final(decision.phase) and not is_final(plan.status.phase):
        status["endedAt"] = now
    if decision.end_batch:
        status |= ended_batches.fold_open_batch(
            plan, read.upgrades, now, lost=cost, terminated=count_terminated_gangs(read)
        )
    return status


def _forecast_summary(made: Forecast, now: datetime, *, started: bool) -> dict[str, Any]:
    """The rest of the forecast, without a batch that is being `started`. Unknown times are written as null."""
    first = made.batches[0] if made.batches else None
    gone = first if started else None
    starts = first.starts_at if first is not None and first.starts_at is not None and first.starts_at > now else None
    prediction = made.prediction
    summary = ForecastSummary(
        batches=made.summary.batches - (gone is not None),
        nodes=made.summary.nodes - (len(gone.nodes) if gone is not None else 0),
        interruptions=made.summary.interruptions - (_count_gangs(gone) if gone is not None else 0),
        blocked=made.summary.blocked,
        waiting_for_completion=sum(len(completion.nodes) for completion in made.completions),
        waits_for=first.waits_for if first is not None and starts is not None else "",
        lost_gpu_hours=round(prediction.lost_gpu_hours, 2),
    )
    times = {"nextStartsAt": starts, "finishP50": prediction.finish_p50, "finishP95": prediction.finish_p95}
    return explicit_json(summary) | {name: _round_up_to_minute(at) for name, at in times.items()}


def _count_gangs(batch: BatchForecast) -> int:
    return sum(len(group.gangs) for group in batch.groups)


def _round_up_to_minute(at: datetime | None) -> str | None:
    # Rounded up to whole minutes: a status that changes each second would be written each second.
    if at is None:
        return None
    over = timedelta(seconds=at.second, microseconds=at.microsecond)
    return timing.format_time(at - over + timedelta(minutes=1) if over else at)


def _forecast_changes(read: PlanReading, status: Mapping[str, Any]) -> str:
    """The differences between the forecast and the one in the status."""
    before, made = read.plan.status, read.forecast
    if made is None:
        return ""
    blocked = frozenset((entry["subject"], entry["reason"]) for entry in status["blockers"])
    return forecast_diff.describe_changes(
        Outlook(
            nodes=before.forecast.nodes + before.forecast.waiting_for_completion,
            interruptions=before.forecast.interruptions,
            blocked=before.forecast.blocked,
            blockers=frozenset((blocker.subject, blocker.reason) for blocker in before.blockers),
        ),
        Outlook(
            nodes=made.summary.nodes + sum(len(completion.nodes) for completion in made.completions),
            interruptions=made.summary.interruptions,
            blocked=made.summary.blocked,
            blockers=blocked,
        ),
    )


def _status_blockers(read: PlanReading) -> list[dict[str, Any]]:
    if read.forecast is None:
        return []
    metrics.show_blockers(read.plan.metadata.name, Counter(blocker.reason.value for blocker in read.forecast.blockers))
    cooling = [
        BlockerStatus(
            subject=node, reason="RetriedLater", message="its upgrade group was released and is retried later"
        )
        for node in sorted(read.cooling)
    ]
    worst = sorted(read.forecast.blockers, key=lambda blocker: -len(blocker.nodes))
    shown = [
        BlockerStatus(subject=blocker.subject, reason=blocker.reason.value, message=blocker.message)
        for blocker in worst
    ]
    return [msgspec.to_builtins(blocker) for blocker in (*shown, *cooling)[:WORST]]


def _plan_counts(read: PlanReading) -> PlanCounts:
    latest = {fact.node: fact for fact in sorted(upgrade_facts(read.upgrades), key=lambda fact: fact.batch)}
    still = (
        {node_drift.node for node_drift in read.forecast.drift if node_drift.drifted}
        if read.forecast is not None
        else set()
    )
    done = sum(upgrade.phase is NodePhase.SUCCEEDED for upgrade in latest.values())
    return PlanCounts(
        nodes=max(read.plan.status.counts.nodes, len(latest.keys() | still)),
        succeeded=done,
        failed=sum(upgrade.phase is NodePhase.FAILED for upgrade in latest.values()),
        interruptions=count_interruptions(read),
        restored=max(
            read.plan.status.counts.restored,  # requests can be removed by force
            sum(request.status.phase is RequestPhase.RESTORED for request in read.requests),
        ),
    )


async def write_status(context: Context, read: PlanReading, decision: PlanDecision) -> UpgradePlan:
    """Write the plan's status if it changes; returns the plan after the write."""
    plan = read.plan
    status = render_status(context, read, decision)
    present = explicit_json(plan.status)
    if all(_is_equal_on_wire(present.get(key), value) for key, value in status.items()):
        return plan
    written: UpgradePlan = await record_status(
        context, UPGRADE_PLANS, plan.metadata, status, left=plan.status.phase, entered=decision.phase
    )
    if decision.phase is not plan.status.phase:
        await _emit_event(context, plan, decision)
    return written


def _is_equal_on_wire(before: object, after: object) -> bool:
    # Unset fields are left out on the wire: an empty list, an empty object and nothing are the same.
    if isinstance(after, dict):
        after = {name: value for name, value in after.items() if value is not None}
    return before == after or (not before and not after)


async def _emit_event(context: Context, plan: UpgradePlan, decision: PlanDecision) -> None:
    meta = ObjectMeta(name=plan.metadata.name, uid=plan.metadata.uid)
    await context.cluster.event(
        meta,
        UPGRADE_PLANS.kind,
        UPGRADE_PLANS.api_version,
        reason=f"Plan{decision.phase.value}",
        message=decision.message,
        warning=decision.phase in {PlanPhase.FAILED, PlanPhase.PAUSED},
    )
