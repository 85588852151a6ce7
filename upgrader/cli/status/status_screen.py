"""Text output of `upgrader status`: stacks and plans with their phases, approvals and blockers."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from upgrader.api.v1alpha1 import Approval, BatchStatus, CheckpointRequest, GpuStack, NodeUpgrade, UpgradePlan
from upgrader.cli.base import humanize
from upgrader.cli.base.render import (
    FOLDED_AT,
    count_things,
    empty_table,
    folded_table,
    list_names,
    show_change,
    titled_table,
)
from upgrader.cli.shared.progress import Progress
from upgrader.core import timing
from upgrader.core.explain.plan_file import rounded_up
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, is_final
from upgrader.reconcile.render.custom_objects import LABEL_BATCH

NAMES = 3
"""Maximum number of names in one cell."""

_GOOD = frozenset({PlanPhase.COMPLETED, NodePhase.SUCCEEDED, RequestPhase.RESTORED})
_BAD = frozenset({PlanPhase.FAILED, PlanPhase.ABORTED, NodePhase.FAILED, NodePhase.NODE_DELETED, RequestPhase.ENDED})


def overview_tables(stacks: Sequence[GpuStack], plans: Sequence[UpgradePlan]) -> RenderableType:
    """All stacks and plans."""
    if not stacks and not plans:
        return Text("No GpuStack and no UpgradePlan found.")
    parts: list[RenderableType] = []
    if stacks:
        parts.append(_stack_table(stacks))
    if plans:
        parts.append(_plan_table(plans))
    return Group(*parts)


def _stack_table(stacks: Sequence[GpuStack]) -> Table:
    table = empty_table("Stack", "Revision", "Ready", "Nodes", "Drifted", "Plan", "Driver")
    for stack in stacks:
        status = stack.status
        table.add_row(
            stack.metadata.name,
            status.update_revision or "",
            str(status.ready),
            str(status.nodes),
            str(status.drifted),
            status.active_plan or "",
            stack.spec.driver.version,
        )
    return table


def _plan_table(plans: Sequence[UpgradePlan]) -> Table:
    table = empty_table("Plan", "Stack", "Revision", "Phase", "Done", "Stopped", "Message")
    for plan in plans:
        counts = plan.status.counts
        table.add_row(
            plan.metadata.name,
            plan.spec.stack,
            plan.spec.target_revision,
            _phase_text(plan.status.phase),
            f"{counts.succeeded}/{counts.nodes}",
            str(counts.interruptions),
            plan.status.message,
        )
    return table


def plan_tables(seen: Progress) -> RenderableType:
    """One plan: its approval, progress and blockers, its upgrades and requests."""
    plan = seen.plan
    head = Text.assemble(
        f"Plan {plan.metadata.name} (stack {plan.spec.stack}, revision {plan.spec.target_revision}): ",
        _phase_text(plan.status.phase),
        "".join(f"\n{line}" for line in _summary_lines(seen)),
    )
    parts: list[RenderableType] = [head]
    if plan.status.batches:
        parts.append(titled_table(f"Batches; times in {humanize.zone_name(seen.at)}", _batch_table(seen)))
    shown = [upgrade for upgrade in seen.upgrades if not is_final(upgrade.status.phase)] or seen.upgrades
    if shown:
        parts.append(titled_table("Nodes", _upgrade_table(shown, seen.at)))
    if seen.requests:
        parts.append(titled_table("Gangs", _request_table(seen)))
    if plan.status.blockers:
        table = empty_table("Blocked", "Reason", "Message")
        for blocker in plan.status.blockers:
            table.add_row(blocker.subject, blocker.reason, blocker.message)
        parts.append(titled_table("Blockers", table))
    if plan.status.failures:
        table = empty_table("Failed", "Reason", "Message")
        for failure in plan.status.failures:
            table.add_row(failure.subject, failure.reason, failure.message)
        parts.append(titled_table("Failures", table))
    return Group(*parts)


def _summary_lines(seen: Progress) -> list[str]:
    plan, at = seen.plan, seen.at
    counts, lost, ignored = plan.status.counts, plan.status.lost_gpu_hours, plan.status.ignored_requests
    why = f" ({plan.status.reason})" if plan.status.reason else ""
    lines = [
        f"{plan.status.message}{why}" if plan.status.message else "",
        _approval_text(plan.spec.approval, at),
        (
            f"{counts.succeeded} of {counts.nodes} nodes done, {counts.failed} failed; "
            f"{count_things(counts.interruptions, 'gang')} stopped, {counts.restored} restored"
        ),
        f"{lost.actual:.1f} GPU-hours lost, {lost.predicted:.1f} predicted" if lost.actual or lost.predicted else "",
        *_to_come(plan, at),
        f"canaries are watched until {_format_time(plan.status.soak_until, at)}"
        if _is_future(plan.status.soak_until, at)
        else "",
        f"reserved until their jobs end: {list_names(plan.status.reserved_nodes)}"
        if plan.status.reserved_nodes
        else "",
        f"ignored CheckpointRequests that this plan did not create: {list_names(ignored)}" if ignored else "",
        f"changed: {plan.status.changed}" if plan.status.changed else "",
        f"rolled back by plan {plan.status.rollback_plan}" if plan.status.rollback_plan else "",
    ]
    return [line for line in lines if line]


def _approval_text(approval: Approval | None, at: datetime) -> str:
    if approval is None:
        return "not approved"
    limits = approval.limits
    parts = [f"at most {count_things(limits.max_interruptions, 'gang')} stopped"]
    if limits.max_lost_gpu_hours is not None:
        parts.append(f"at most {rounded_up(limits.max_lost_gpu_hours):.1f} GPU-hours lost")
    if limits.expendable:
        parts.append(f"expendable: {list_names(limits.expendable)}")
    if limits.placement_unguaranteed:
        parts.append("placement not guaranteed")
    return f"approved by {approval.by} at {_format_time(approval.at, at)}: {', '.join(parts)}"


def _to_come(plan: UpgradePlan, at: datetime) -> list[str]:
    if is_final(plan.status.phase):
        return []
    still = plan.status.forecast
    parts = [
        (
            f"remaining: {count_things(still.batches, 'batch', 'batches')} with {count_things(still.nodes, 'node')}, "
            f"{count_things(still.interruptions, 'interruption')}, {still.blocked} blocked"
        )
    ]
    if still.waiting_for_completion:
        parts.append(f"{count_things(still.waiting_for_completion, 'node')} after completion of their jobs")
    if still.lost_gpu_hours:
        parts.append(f"{still.lost_gpu_hours:.1f} GPU-hours")
    lines = ["; ".join(parts)]
    if still.next_starts_at is not None:
        waits = f": {still.waits_for}" if still.waits_for else ""
        lines.append(f"the next batch starts at {_format_time(still.next_starts_at, at)}{waits}")
    if still.finish_p50 is not None and still.finish_p95 is not None:
        lines.append(
            f"expected end: {_format_time(still.finish_p50, at)} (median), "
            f"{_format_time(still.finish_p95, at)} (95th percentile)"
        )
    return lines


def _batch_table(seen: Progress) -> RenderableType:
    table = empty_table("Batch", "Kind", "Started", "Ended", "Nodes", "Gangs")

    def add_batch(batch: BatchStatus) -> None:
        # The status of an ended batch has only counts; the names are those of its objects, if they still exist.
        label, ended = str(batch.number), batch.ended_at is not None
        upgrades = [
            upgrade.spec.node.name for upgrade in seen.upgrades if upgrade.metadata.labels.get(LABEL_BATCH) == label
        ]
        asked = [request.spec.gang for request in seen.requests if request.metadata.labels.get(LABEL_BATCH) == label]
        nodes = upgrades if ended else [name for group in batch.groups for name in group.nodes]
        gangs = asked if ended else [name for group in batch.groups for name in group.gangs]
        table.add_row(
            str(batch.number),
            batch.kind.value,
            _format_time(batch.started_at, seen.at),
            _format_time(batch.ended_at, seen.at) if batch.ended_at is not None else "in progress",
            _count_and_names(batch.node_count if ended else len(nodes), nodes),
            _count_and_names(batch.gang_count if ended else len(gangs), gangs),
        )

    latest_first = sorted(seen.plan.status.batches, key=lambda batch: -batch.number)
    before = seen.plan.status.ended.count - sum(batch.ended_at is not None for batch in latest_first)
    return folded_table(
        table,
        latest_first,
        add_batch,
        lambda rest: f"and {count_things(rest, 'earlier batch', 'earlier batches')}",
        more=before,
    )


def _count_and_names(count: int, names: Sequence[str]) -> str:
    return f"{count}: {list_names(names, NAMES)}" if names else str(count or "none")


def _upgrade_table(upgrades: Sequence[NodeUpgrade], at: datetime) -> RenderableType:
    table = empty_table("Node", "Phase", "Until", "Driver", "Kubelet", "")

    def add_upgrade(upgrade: NodeUpgrade) -> None:
        back = " (reverting)" if upgrade.status.reverting and not is_final(upgrade.status.phase) else ""
        source, target = upgrade.spec.source, upgrade.spec.target
        table.add_row(
            upgrade.spec.node.name,
            Text.assemble(_phase_text(upgrade.status.phase), back),
            _format_time(upgrade.status.deadline, at) if upgrade.status.deadline else "",
            show_change(source.driver_version, target.driver_version),
            show_change(source.kubelet_version, target.kubelet_version),
            upgrade.status.message,
        )

    ordered = sorted(upgrades, key=lambda upgrade: upgrade.status.phase not in _BAD)
    phases = Counter(upgrade.status.phase.value for upgrade in ordered[FOLDED_AT:])
    counts = ", ".join(f"{number} {phase}" for phase, number in sorted(phases.items()))
    return folded_table(table, ordered, add_upgrade, lambda rest: f"and {count_things(rest, 'more node')}: {counts}")


def _request_table(seen: Progress) -> RenderableType:
    table = empty_table("Gang", "Phase", "Members", "Acknowledged step", "")

    def add_request(request: CheckpointRequest) -> None:
        step = request.status.acknowledged_step
        table.add_row(
            request.spec.gang,
            _phase_text(request.status.phase),
            str(len(request.spec.members)),
            "" if step is None else str(step),
            request.status.message,
        )

    ordered = sorted(
        seen.requests, key=lambda request: (request.status.phase not in _BAD, is_final(request.status.phase))
    )
    phases = Counter(request.status.phase.value for request in ordered[FOLDED_AT:])
    counts = ", ".join(f"{number} {phase}" for phase, number in sorted(phases.items()))
    return folded_table(table, ordered, add_request, lambda rest: f"and {count_things(rest, 'more gang')}: {counts}")


def _format_time(text: str | None, at: datetime) -> str:
    return humanize.show_time(timing.parse_time(text), at) if text else ""


def _is_future(text: str | None, at: datetime) -> bool:
    return text is not None and timing.parse_time(text) > at


def _phase_text(phase: PlanPhase | NodePhase | RequestPhase) -> Text:
    style = "green" if phase in _GOOD else "red" if phase in _BAD else "yellow"
    return Text(phase.value, style=style)
