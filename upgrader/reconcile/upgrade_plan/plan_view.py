"""From a plan's objects to the values that core.upgrade_plan.plan_machine decides on."""

from collections.abc import Sequence
from datetime import datetime

from upgrader.api import names
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core import timing, untrusted
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.phases import NodePhase, ends
from upgrader.core.upgrade_plan.plan_precedence import Rival, goes_first
from upgrader.core.upgrade_plan.plan_state import (
    Canaries,
    Losses,
    NextBatch,
    PlanView,
    RequestSummary,
    Trouble,
    UpgradeFacts,
)
from upgrader.reconcile.facts.strategies import deadline_of
from upgrader.reconcile.node_upgrade.upgrade_reading import expected_gpus
from upgrader.reconcile.render.custom_objects import LABEL_BATCH, batch_of
from upgrader.reconcile.upgrade_plan import ended_batches
from upgrader.reconcile.upgrade_plan.gpu_hours_lost import lost
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading


def view(read: PlanReading, now: datetime) -> PlanView:
    """The values that `core.upgrade_plan.plan_machine.decide` works on."""
    plan, made, batch = read.plan, read.forecast, read.open_batch
    stack_revision = read.stack.status.update_revision if read.stack is not None else None
    started = timing.parse(plan.status.started_at) if plan.status.started_at else None
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
        first=goes_first(_rival(plan), _others(read, stack_revision)),
        tolerated_failures=plan.spec.tolerated_failures,
        max_interruptions=plan.spec.approval.limits.max_interruptions if plan.spec.approval else 0,
        interrupted=interrupted(read),
        batches=ended_batches.started(plan),
        open_batch=batch.number if batch is not None else None,
        created=_created(read),
        upgrades=upgrade_facts(read.upgrades),
        requests=_request(read.requests),
        next_batch=_next_batch(read),
        waiting=(made.summary.blocked if made else 0) + len(read.cooling),
        waiting_for_completion=sum(len(one.nodes) for one in made.completions) if made else 0,
        installs=made.summary.installs if made else 0,
        canaries=_canaries(read),
        losses=_losses(read),
        deadline=deadline_of(plan, started) if started is not None else None,
        on_failure=plan.spec.strategy.on_failure,
        synced=batch is not None or made is not None,
        revision_known=read.target is not None,
        problem=read.problem,
        stopped=_stopped(read),
    )


def _stopped(read: PlanReading) -> tuple[str, ...]:
    """Owners that the plan stopped, that are stopped, and that no open request restarts."""
    if read.snapshot is None:
        return ()
    open_requests = {(one.metadata.namespace, one.metadata.name) for one in read.requests if not ends(one.status.phase)}
    return tuple(
        one.shown
        for one in read.snapshot.stopped
        if one.off and one.plan == read.plan.metadata.name and (one.namespace, one.request) not in open_requests
    )


def _others(read: PlanReading, stack_revision: str | None) -> list[Rival]:
    """The other plans of the same stack."""
    return [
        _rival(one, startable=one.spec.target_revision in {*read.kept, stack_revision})
        for one in read.others
        if one.spec.stack == read.plan.spec.stack
    ]


def _next_batch(read: PlanReading) -> NextBatch | None:
    if read.forecast is None or not read.forecast.batches:
        return None
    batch = read.forecast.batches[0]
    return NextBatch(
        interruptions=sum(len(one.gangs) for one in batch.groups),
        starts_at=batch.starts_at,
        waits_for=batch.waits_for,
        canary=batch.kind is BatchKind.CANARY,
    )


def _request(requests: Sequence[CheckpointRequest]) -> tuple[RequestSummary, ...]:
    return tuple(
        RequestSummary(
            name=one.metadata.name,
            gang=one.spec.gang,
            batch=batch_of(one.metadata),
            phase=one.status.phase,
            reason=one.status.reason,
            message=one.status.message,
            late=_late(one),
        )
        for one in requests
    )


def _canaries(read: PlanReading) -> Canaries:
    plan = read.plan
    canary, soak = plan.spec.strategy.canary, plan.status.soak_until
    return Canaries(
        enabled=canary.enabled,
        batches=_canary_batches(plan),
        soak_seconds=canary.soak_seconds,
        soak_until=timing.parse(soak) if soak else None,
        unwell=_unwell(read),
    )


def _canary_batches(plan: UpgradePlan) -> frozenset[int]:
    return frozenset(one.batch for one in ended_batches.canaries(plan))


def _unwell(read: PlanReading) -> tuple[Trouble, ...]:
    """Canaries that were given back and are not what they were then."""
    numbers = _canary_batches(read.plan)
    if read.snapshot is None or not numbers:
        return ()
    nodes = {node.name: node for node in read.snapshot.nodes}
    found = []
    for one in read.upgrades:
        if batch_of(one.metadata) not in numbers or one.status.phase is not NodePhase.SUCCEEDED:
            continue
        node = nodes.get(one.spec.node.name)
        if node is None or node.uid != one.spec.node.uid:
            why = "left the pool while it was watched"
        elif not node.ready:
            why = "is not Ready any more"
        elif node.gpus_allocatable < max(1, expected_gpus(one)):
            why = f"offers {node.gpus_allocatable} GPUs, {expected_gpus(one) or 'some'} are expected"
        else:
            continue
        found.append(Trouble(subject=one.spec.node.name, reason="CanaryUnwell", message=why))
    return tuple(found)


def _losses(read: PlanReading) -> Losses:
    approval = read.plan.spec.approval
    return Losses(
        actual=lost(read.plan, read.upgrades, read.requests),
        expected=read.forecast.prediction.lost_gpu_hours if read.forecast is not None else 0.0,
        approved=approval.limits.max_lost_gpu_hours if approval is not None else None,
    )


def interrupted(read: PlanReading) -> int:
    """How many gangs the plan has stopped, or ended for good; also those whose requests are gone."""
    stopped = [request.spec.owner.uid for request in read.requests if request.status.stopped_at is not None]
    gone = frozenset(read.plan.status.stopped_owners) - set(stopped)
    return len(stopped) + len(gone) + ended_for_good(read)


def ended_for_good(read: PlanReading) -> int:
    """How many gangs that nothing restarts were let go or are about to be: a node of theirs came to its drain."""
    drained = {
        one.spec.group for one in read.upgrades if any(step.name is NodePhase.DRAINING for step in one.status.steps)
    }
    groups = (one for batch in read.plan.status.batches for one in batch.groups if one.name in drained)
    return read.plan.status.ended.terminated + len({gang for one in groups for gang in one.expendable})


def _rival(plan: UpgradePlan, *, startable: bool = True) -> Rival:
    return Rival(
        name=plan.metadata.name,
        made_at=plan.metadata.creation_timestamp,
        phase=plan.status.phase,
        approved=plan.spec.approval is not None,
        startable=startable,
        state=plan.spec.state,
        busy=any(one.ended_at is None for one in plan.status.batches),
    )


def _late(request: CheckpointRequest) -> bool:
    restarted, latest = request.status.restarted_at, request.status.restart_by
    return bool(restarted and latest) and timing.parse(restarted or "") >= timing.parse(latest or "")


def upgrade_facts(upgrades: Sequence[NodeUpgrade]) -> tuple[UpgradeFacts, ...]:
    """The plan's upgrades."""
    return tuple(
        UpgradeFacts(
            name=one.metadata.name,
            node=one.spec.node.name,
            batch=batch_of(one.metadata),
            phase=one.status.phase,
            failure=one.status.reason,
            message=_why(one) if one.status.phase is NodePhase.FAILED else one.status.message,
            ended_at=timing.parse(one.status.steps[-1].ended_at)
            if one.status.steps and one.status.steps[-1].ended_at
            else None,
        )
        for one in upgrades
    )


def _why(upgrade: NodeUpgrade) -> str:
    """What was said where the walk turned: what follows it is only the way back."""
    steps = upgrade.status.steps
    offs = [at for at, one in enumerate(steps) if one.name is NodePhase.UNLOADING]
    if upgrade.status.reason == "RevertFailed" or not steps:
        return upgrade.status.message
    if upgrade.status.reverting and len(offs) > 1:
        return steps[offs[1] - 1].result
    if steps[-1].name is NodePhase.RELEASING and len(steps) > 1:
        return steps[-2].result
    return upgrade.status.message


def _created(read: PlanReading) -> bool:
    """Whether every upgrade of the open batch was made that can be made: nodes may have left, images may have gone."""
    batch = read.open_batch
    if batch is None:
        return True
    there = {one.spec.node.name for one in read.upgrades if one.metadata.labels.get(LABEL_BATCH) == str(batch.number)}
    missing = [node for group in batch.groups for node in group.nodes if node not in there]
    if not missing or read.snapshot is None or read.target is None:
        return not missing
    facts = {node.name: node for node in read.snapshot.nodes}
    catalogue = Catalogue(read.snapshot.images)
    return all(name not in facts or catalogue.for_upgrade(facts[name], read.target) is None for name in missing)


def number_of(plan: UpgradePlan) -> int:
    """As which of its plans for the revision a stack made it; 0: a person did, or a rollback."""
    return untrusted.whole(plan.metadata.annotations.get(names.ANNOTATION_ON_DRIFT)) or 0
