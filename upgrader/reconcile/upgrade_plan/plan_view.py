"""The values that core.upgrade_plan.plan_machine decides on, built from a plan's objects."""

from collections.abc import Sequence
from datetime import datetime

from upgrader.api import names
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core import timing, untrusted
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.core.upgrade_plan.plan_precedence import Rival, goes_first
from upgrader.core.upgrade_plan.plan_state import (
    Canaries,
    NextBatch,
    PlanLosses,
    PlanView,
    RequestSummary,
    Trouble,
    UpgradeFacts,
)
from upgrader.reconcile.facts.strategies import deadline_of
from upgrader.reconcile.node_upgrade.upgrade_reading import expected_gpus
from upgrader.reconcile.render.custom_objects import LABEL_BATCH, batch_of
from upgrader.reconcile.upgrade_plan import ended_batches
from upgrader.reconcile.upgrade_plan.gpu_hours_lost import total_gpu_hours_lost
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading


def build_plan_view(read: PlanReading, now: datetime) -> PlanView:
    """The input of `core.upgrade_plan.plan_machine.decide`."""
    plan, made, batch = read.plan, read.forecast, read.open_batch
    stack_revision = read.stack.status.update_revision if read.stack is not None else None
    started = timing.parse_time(plan.status.started_at) if plan.status.started_at else None
    return PlanView(
        name=plan.metadata.name,
        now=now,
        phase=plan.status.phase,
        reason=plan.status.reason,
        state=plan.spec.state,
        deleted=plan.metadata.deletion_timestamp is not None,
        approved=plan.spec.approval is not None,
        on_drift=number_of(plan) > 0,
        target_revision=plan.spec.target_revision,
        stack_present=read.stack is not None and read.stack.metadata.deletion_timestamp is None,
        stack_revision=stack_revision,
        started_stack_revision=plan.status.stack_revision,
        first=goes_first(_rival_of(plan), _other_plans(read, stack_revision)),
        tolerated_failures=plan.spec.tolerated_failures,
        max_interruptions=plan.spec.approval.limits.max_interruptions if plan.spec.approval else 0,
        interrupted=count_interruptions(read),
        batches=ended_batches.started_batches(plan),
        open_batch=batch.number if batch is not None else None,
        created=_has_all_upgrades(read),
        upgrades=upgrade_facts(read.upgrades),
        requests=_request_summaries(read.requests),
        next_batch=_next_batch(read),
        waiting=(made.summary.blocked if made else 0) + len(read.cooling),
        waiting_for_completion=sum(len(completion.nodes) for completion in made.completions) if made else 0,
        installs=made.summary.installs if made else 0,
        canaries=_canary_view(read),
        losses=_plan_losses(read),
        deadline=deadline_of(plan, started) if started is not None else None,
        on_failure=plan.spec.strategy.on_failure,
        synced=batch is not None or made is not None,
        revision_known=read.target is not None,
        problem=read.problem,
        stopped=_stopped_owners(read),
    )


def _stopped_owners(read: PlanReading) -> tuple[str, ...]:
    """Owners that the plan has stopped and that no open request restarts."""
    if read.snapshot is None:
        return ()
    open_requests = {
        (request.metadata.namespace, request.metadata.name)
        for request in read.requests
        if not is_final(request.status.phase)
    }
    return tuple(
        owner.shown
        for owner in read.snapshot.stopped
        if owner.off and owner.plan == read.plan.metadata.name and (owner.namespace, owner.request) not in open_requests
    )


def _other_plans(read: PlanReading, stack_revision: str | None) -> list[Rival]:
    """The other plans of the same stack."""
    return [
        _rival_of(other, startable=other.spec.target_revision in {*read.kept, stack_revision})
        for other in read.others
        if other.spec.stack == read.plan.spec.stack
    ]


def _next_batch(read: PlanReading) -> NextBatch | None:
    if read.forecast is None or not read.forecast.batches:
        return None
    batch = read.forecast.batches[0]
    return NextBatch(
        interruptions=sum(len(group.gangs) for group in batch.groups),
        starts_at=batch.starts_at,
        waits_for=batch.waits_for,
        canary=batch.kind is BatchKind.CANARY,
    )


def _request_summaries(requests: Sequence[CheckpointRequest]) -> tuple[RequestSummary, ...]:
    return tuple(
        RequestSummary(
            name=request.metadata.name,
            gang=request.spec.gang,
            batch=batch_of(request.metadata),
            phase=request.status.phase,
            reason=request.status.reason,
            message=request.status.message,
            late=_is_restarted_late(request),
        )
        for request in requests
    )


def _canary_view(read: PlanReading) -> Canaries:
    plan = read.plan
    canary, soak = plan.spec.strategy.canary, plan.status.soak_until
    return Canaries(
        enabled=canary.enabled,
        batches=_canary_batches(plan),
        soak_seconds=canary.soak_seconds,
        soak_until=timing.parse_time(soak) if soak else None,
        unwell=_unhealthy_canaries(read),
    )


def _canary_batches(plan: UpgradePlan) -> frozenset[int]:
    return frozenset(canary.batch for canary in ended_batches.all_canaries(plan))


def _unhealthy_canaries(read: PlanReading) -> tuple[Trouble, ...]:
    """Released canaries that left the pool, are not Ready, or offer fewer GPUs than expected."""
    numbers = _canary_batches(read.plan)
    if read.snapshot is None or not numbers:
        return ()
    nodes = {node.name: node for node in read.snapshot.nodes}
    troubles = []
    for upgrade in read.upgrades:
        if batch_of(upgrade.metadata) not in numbers or upgrade.status.phase is not NodePhase.SUCCEEDED:
            continue
        node = nodes.get(upgrade.spec.node.name)
        if node is None or node.uid != upgrade.spec.node.uid:
            why = "left the pool during the soak"
        elif not node.ready:
            why = "is no longer Ready"
        elif node.gpus_allocatable < max(1, expected_gpus(upgrade)):
            why = f"offers {node.gpus_allocatable} GPUs, {expected_gpus(upgrade) or 'some'} are expected"
        else:
            continue
        troubles.append(Trouble(subject=upgrade.spec.node.name, reason="CanaryUnwell", message=why))
    return tuple(troubles)


def _plan_losses(read: PlanReading) -> PlanLosses:
    approval = read.plan.spec.approval
    return PlanLosses(
        actual=total_gpu_hours_lost(read.plan, read.upgrades, read.requests),
        expected=read.forecast.prediction.lost_gpu_hours if read.forecast is not None else 0.0,
        approved=approval.limits.max_lost_gpu_hours if approval is not None else None,
    )


def count_interruptions(read: PlanReading) -> int:
    """The number of gangs that the plan has stopped or terminated, including those whose requests are deleted."""
    stopped = [request.spec.owner.uid for request in read.requests if request.status.stopped_at is not None]
    gone = frozenset(read.plan.status.stopped_owners) - set(stopped)
    return len(stopped) + len(gone) + count_terminated_gangs(read)


def count_terminated_gangs(read: PlanReading) -> int:
    """The number of gangs without a controller whose group has reached its drain."""
    drained = {
        upgrade.spec.group
        for upgrade in read.upgrades
        if any(step.name is NodePhase.DRAINING for step in upgrade.status.steps)
    }
    groups = (group for batch in read.plan.status.batches for group in batch.groups if group.name in drained)
    return read.plan.status.ended.terminated + len({gang for group in groups for gang in group.expendable})


def _rival_of(plan: UpgradePlan, *, startable: bool = True) -> Rival:
    return Rival(
        name=plan.metadata.name,
        made_at=plan.metadata.creation_timestamp,
        phase=plan.status.phase,
        approved=plan.spec.approval is not None,
        startable=startable,
        state=plan.spec.state,
        busy=any(batch.ended_at is None for batch in plan.status.batches),
    )


def _is_restarted_late(request: CheckpointRequest) -> bool:
    restarted, latest = request.status.restarted_at, request.status.restart_by
    return bool(restarted and latest) and timing.parse_time(restarted or "") >= timing.parse_time(latest or "")


def upgrade_facts(upgrades: Sequence[NodeUpgrade]) -> tuple[UpgradeFacts, ...]:
    """The plan's upgrades."""
    return tuple(
        UpgradeFacts(
            name=upgrade.metadata.name,
            node=upgrade.spec.node.name,
            batch=batch_of(upgrade.metadata),
            phase=upgrade.status.phase,
            failure=upgrade.status.reason,
            message=_failure_message(upgrade) if upgrade.status.phase is NodePhase.FAILED else upgrade.status.message,
            ended_at=timing.parse_time(upgrade.status.steps[-1].ended_at)
            if upgrade.status.steps and upgrade.status.steps[-1].ended_at
            else None,
        )
        for upgrade in upgrades
    )


def _failure_message(upgrade: NodeUpgrade) -> str:
    """The message of the step that failed; later steps only revert the node."""
    steps = upgrade.status.steps
    offs = [at for at, step in enumerate(steps) if step.name is NodePhase.UNLOADING]
    if upgrade.status.reason == "RevertFailed" or not steps:
        return upgrade.status.message
    if upgrade.status.reverting and len(offs) > 1:
        return steps[offs[1] - 1].result
    if steps[-1].name is NodePhase.RELEASING and len(steps) > 1:
        return steps[-2].result
    return upgrade.status.message


def _has_all_upgrades(read: PlanReading) -> bool:
    """Whether every possible upgrade of the open batch exists; nodes may have left, images may have been deleted."""
    batch = read.open_batch
    if batch is None:
        return True
    there = {
        upgrade.spec.node.name
        for upgrade in read.upgrades
        if upgrade.metadata.labels.get(LABEL_BATCH) == str(batch.number)
    }
    missing = [node for group in batch.groups for node in group.nodes if node not in there]
    if not missing or read.snapshot is None or read.target is None:
        return not missing
    facts = {node.name: node for node in read.snapshot.nodes}
    catalogue = Catalogue(read.snapshot.images)
    return all(name not in facts or catalogue.for_upgrade(facts[name], read.target) is None for name in missing)


def number_of(plan: UpgradePlan) -> int:
    """The number of the plan among those of its stack for the revision; 0: a user or a rollback created it."""
    return untrusted.parse_whole(plan.metadata.annotations.get(names.ANNOTATION_ON_DRIFT)) or 0
