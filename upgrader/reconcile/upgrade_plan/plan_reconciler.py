"""One step of an UpgradePlan: read, decide (core.upgrade_plan), record a batch before it exists, drive what is open."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest, UpgradePlan
from upgrader.core.errors import REFUSED, ConfigurationError, LostLeadershipError, describe
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, ends
from upgrader.core.upgrade_plan import plan_machine
from upgrader.core.upgrade_plan.plan_machine import PlanDecision
from upgrader.reconcile.checkpoint_request.live_owners import read_owner
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.node_upgrade.upgrade_actions import forget
from upgrader.reconcile.observe import cluster_snapshot, own_requests
from upgrader.reconcile.observe.durations import Past, past_of, seen
from upgrader.reconcile.observe.listed_nodes import list_nodes
from upgrader.reconcile.observe.revisions import former_resources, read_target
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context, anew, record
from upgrader.reconcile.runtime.isolation import PASSING, Faults, faults_of, tell
from upgrader.reconcile.upgrade_group import leftovers
from upgrader.reconcile.upgrade_group.group_reconciler import Crowd
from upgrader.reconcile.upgrade_plan import (
    batches,
    ended_batches,
    plan_status,
    plan_view,
    pruning,
    reservations,
    rollbacks,
)
from upgrader.reconcile.upgrade_plan.batch_steps import Drive, all_ended, of_batch
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading
from upgrader.reconcile.upgrade_plan.remaining_work import rest_of
from upgrader.telemetry import metrics

log = structlog.get_logger()


async def step(context: Context, name: str) -> float | None:
    """One step of the plan; seconds until the next one, None when there is nothing left to do.

    Raises:
        ClusterError: the API server refused or did not answer; nothing is lost, the step is made again.
    """
    plan = await context.cluster.get(UPGRADE_PLANS, name)
    if plan is None:
        return await _without_plan(context, name)
    over = ends(plan.status.phase)
    if names.FINALIZER not in plan.metadata.finalizers and plan.metadata.deletion_timestamp is None and not over:
        plan = await finalizers.put(context, UPGRADE_PLANS, plan.metadata)
    read, faults = await _read(context, plan), faults_of(UPGRADE_PLANS, plan.status.conditions)
    try:
        pause = await (_finish if over else _go_on)(context, read, faults)
    except PASSING:
        raise
    except Exception as error:  # told to people, then raised as it was
        faults.note(f"plan {name}", error)
        await tell(context, UPGRADE_PLANS, name, plan.status.conditions, faults)
        raise
    await tell(context, UPGRADE_PLANS, name, plan.status.conditions, faults)
    faults.check()
    return pause


async def _go_on(context: Context, read: PlanReading, faults: Faults) -> float | None:
    """What is stopped first, from its own objects; only then what others write is looked at, which may fail."""
    drive = Drive(context=context, faults=faults, crowd=Crowd(taken=_restarting(read.requests)))
    await drive.begun(read, undo=_undone(read))
    left = await _take_back(context, read, faults)
    if drive.driven or left:  # that took its time, and a person may have written meanwhile
        plan = await context.cluster.get(UPGRADE_PLANS, read.plan.metadata.name)
        if plan is None:
            return context.active_seconds
        read = replace(read, plan=plan)
    read = await _look(context, read, faults)
    decision = plan_machine.decide(plan_view.view(read, context.clock.now()))
    if decision.start_batch:
        # The budget is every plan's: another may have started a batch since this one looked. It looks again, and nobody
        # else starts one before this one is written.
        async with context.gates.batches:
            fresh = await list_nodes(context)
            read = await _look(fresh, await _read(fresh, read.plan), faults)
            decision = plan_machine.decide(plan_view.view(read, context.clock.now()))
            read = await _write(context, read, decision)
    else:
        read = await _write(context, read, decision)
    with faults.contained("what has ended"):
        await _let_go_of(context, read)
        await pruning.prune(context, read)
    if read.open_batch is not None:
        await drive.rest(read, undo=decision.undo)
    if read.open_batch is not None or left or ends(read.plan.status.phase):
        return context.active_seconds
    return (
        context.idle_seconds
        if decision.phase is read.plan.status.phase and not decision.end_batch
        else context.active_seconds
    )


def _undone(read: PlanReading) -> bool:
    """Whether what the plan has begun is taken back; known without anything that may fail."""
    plan, stack = read.plan, read.stack
    deleted = plan.metadata.deletion_timestamp is not None
    present = stack is not None and stack.metadata.deletion_timestamp is None
    aborted = plan_machine.aborted(plan.spec.state, deleted=deleted, stack_present=present)
    return plan.status.phase is PlanPhase.ABORTING or aborted


def _restarting(requests: Sequence[CheckpointRequest]) -> bool:
    return any(one.status.phase is RequestPhase.RESTARTING for one in requests)


async def _without_plan(context: Context, name: str) -> float | None:
    """A plan that is gone, however it went: what it has begun is taken back."""
    selector = f"{names.LABEL_PLAN}={name}"
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=selector)
    listed = await context.cluster.list(CHECKPOINT_REQUESTS, labels=selector)
    requests, others = own_requests.sort_out(listed, None, upgrades)
    await own_requests.release(context, others)
    context.facts.forget(UPGRADE_PLANS.kind, name)
    faults = faults_of(UPGRADE_PLANS)
    left = await leftovers.take_back(context, upgrades, requests, faults)
    metrics.show_faults(UPGRADE_PLANS.kind, name, len(faults.found))
    faults.check()
    if left:
        return context.active_seconds
    await forget(context, upgrades)
    await leftovers.release(context, requests)
    return None


async def _take_back(context: Context, read: PlanReading, faults: Faults) -> bool:
    """What the plan's started batch does not cover; whether there is any."""
    batch = read.open_batch
    covered = {one.name for one in batch.groups} if batch is not None else set()
    return await leftovers.take_back(context, read.upgrades, read.requests, faults, covered)


async def _write(context: Context, read: PlanReading, decision: PlanDecision) -> PlanReading:
    """What was decided, as the plan's status (a batch that is started is part of it); then the marks that it names."""
    ripe = reservations.wanted(read, decision)
    stuck = await reservations.let_go(context, read.plan.metadata.name, set(read.plan.status.reserved_nodes) - ripe)
    read = replace(read, reserved=ripe | stuck)
    write = _start if decision.start_batch and read.forecast is not None else plan_status.write
    plan = await write(context, read, decision)
    await reservations.mark(context, plan.metadata.name, ripe & reservations.ripening(read))
    return replace(read, plan=plan)


async def _read(context: Context, plan: UpgradePlan) -> PlanReading:
    """The plan's own objects: nothing here is written by those whose jobs run."""
    past = await _past(context, plan)
    others = [one for one in await context.cluster.list(UPGRADE_PLANS) if one.metadata.name != plan.metadata.name]
    waited_for = {
        one.spec.target_revision
        for one in others
        if plan.status.phase is one.status.phase is PlanPhase.PROPOSED and one.spec.stack == plan.spec.stack
    }
    upgrades = [one for one in past.upgrades if one.metadata.labels.get(names.LABEL_PLAN) == plan.metadata.name]
    labelled = [one for one in past.requests if one.metadata.labels.get(names.LABEL_PLAN) == plan.metadata.name]
    requests, ignored = own_requests.sort_out(labelled, plan, upgrades)
    return PlanReading(
        plan=plan,
        stack=await context.cluster.get(GPU_STACKS, plan.spec.stack),
        target=await read_target(context, plan.spec.stack, plan.spec.target_revision),
        upgrades=upgrades,
        requests=requests,
        ignored=ignored,
        others=others,
        past=past,
        kept=frozenset([one for one in waited_for if await read_target(context, plan.spec.stack, one) is not None]),
    )


async def _look(context: Context, read: PlanReading, faults: Faults) -> PlanReading:
    """The same with the world around it, where this step needs that, and a forecast between two batches."""
    plan, stack, target = read.plan, read.stack, read.target
    if stack is None or target is None or not _needs_snapshot(read):
        return read
    try:
        snapshot = await cluster_snapshot.read_snapshot(
            anew(context) if _decides(read) else context,
            stack,
            target,
            former=await former_resources(context, plan.spec.stack, target.resource_name),
            method=plan.spec.checkpoint.method or "",
            reboots=True,
            kept=context.facts.of(UPGRADE_PLANS.kind, plan.metadata.name),
        )
        if snapshot is None or read.open_batch is not None:
            return replace(read, snapshot=snapshot)
        return _forecast(context, replace(read, snapshot=snapshot))
    except LostLeadershipError:
        raise
    except REFUSED as error:
        if read.open_batch is None:
            raise
        # What was begun goes on: gangs that we stopped must not wait for a list that somebody else keeps from us.
        log.warning("the world cannot be read", because=error.brief, details=error.details)
        return read
    except Exception as error:  # noqa: BLE001 - a plan that cannot look at the world can still be aborted
        faults.note("the look at the cluster", error)
        return replace(read, problem=f"the cluster cannot be looked at: {describe(error)}")


async def _past(context: Context, plan: UpgradePlan) -> Past:
    """The plan's own upgrades and requests; before a forecast also those that it learns durations from."""
    waits = not ends(plan.status.phase) and all(one.ended_at is not None for one in plan.status.batches)
    return await past_of(context.cluster, plan.spec.stack, plan="" if waits else plan.metadata.name)


def _needs_snapshot(read: PlanReading) -> bool:
    """Reading all pods is spared while a batch only waits: forecasting, making upgrades, asking gangs and closing do.

    So does the end of an abort: no gang that the plan stopped is to be stopped then.
    """
    batch = read.open_batch
    if batch is None:
        return True
    if read.plan.status.phase is PlanPhase.ABORTING and all_ended(read):
        return True
    phases = [one.status.phase for one in of_batch(read.upgrades, batch.number)]
    waits = {NodePhase.PREPARED, NodePhase.TAINTING} if read.plan.spec.checkpoint.wait_for else {NodePhase.PREPARED}
    return len(phases) < sum(len(one.nodes) for one in batch.groups) or bool(waits.intersection(phases))


def _decides(read: PlanReading) -> bool:
    """Whether pods as they are now decide: which upgrades are made, which gangs are asked, the end."""
    batch, status = read.open_batch, read.plan.status
    if batch is None:  # before a batch is written all is read anew anyway
        return status.phase is PlanPhase.ABORTING or status.reason == "BatchEnded"
    if read.plan.spec.checkpoint.wait_for:
        return True
    there = {(one.spec.group, one.spec.node.name) for one in of_batch(read.upgrades, batch.number)}
    asked = {(one.spec.group, one.spec.gang) for one in of_batch(read.requests, batch.number)}
    return any(
        {(one.name, node) for node in one.nodes} - there or {(one.name, gang) for gang in one.gangs} - asked
        for one in batch.groups
    )


def _forecast(context: Context, read: PlanReading) -> PlanReading:
    plan, snapshot, target = read.plan, read.snapshot, read.target
    if snapshot is None or target is None:
        return read
    now, durations = context.clock.now(), seen(read.past.upgrades, read.past.requests)
    rest = rest_of(plan, snapshot, read.upgrades, read.requests, now)
    before = context.orders.get(plan.metadata.name, ())
    try:
        made = rest.foresee(target, strategy_of(plan, now), now, durations, remainder=before)
    except ConfigurationError as error:  # a time zone that there is not, windows that never open
        return replace(read, problem=str(error), cooling=rest.cooling)
    context.orders[plan.metadata.name] = made.batches
    return replace(read, forecast=made, cooling=rest.cooling)


async def _start(context: Context, read: PlanReading, decision: PlanDecision) -> UpgradePlan:
    """The batch is written first; its upgrades are made in the drive that follows, or after a crash."""
    plan, made, snapshot = read.plan, read.forecast, read.snapshot
    if made is None or snapshot is None:
        raise AssertionError("a batch is started only from a forecast")
    number = ended_batches.started(plan) + 1
    batch = batches.batch_status(context, plan, number, made.batches[0], snapshot)
    left = {node.revision for node in snapshot.nodes if node.revision and node.revision != plan.spec.target_revision}
    status = plan_status.render(context, read, decision) | {
        "batches": [msgspec.to_builtins(one) for one in (*plan.status.batches, batch)],
        "revisionsLeft": sorted(left | set(plan.status.revisions_left)),
    }
    written: UpgradePlan = await record(
        context, UPGRADE_PLANS, plan.metadata, status, left=plan.status.phase, entered=decision.phase
    )
    log.info("batch started", plan=plan.metadata.name, batch=number, groups=len(batch.groups))
    return written


async def _let_go_of(context: Context, read: PlanReading) -> None:
    """Objects that somebody deleted and that nothing depends on: ended upgrades of ended batches, jobless requests."""
    open_batch = read.open_batch.number if read.open_batch is not None else None
    past = [one for one in read.upgrades if one.metadata.labels.get(LABEL_BATCH) != str(open_batch)]
    await force_requests.give_back(context, past)
    await forget(context, past)
    await own_requests.release(context, read.ignored)
    for request in read.requests:
        if ends(request.status.phase) and request.metadata.deletion_timestamp is not None:
            owner = await read_owner(context, request.spec.owner, request.metadata.namespace)
            if owner.body is None and not owner.unread and names.FINALIZER in request.metadata.finalizers:
                await finalizers.take(context, CHECKPOINT_REQUESTS, request.metadata)


async def _finish(context: Context, read: PlanReading, faults: Faults) -> float | None:
    """A plan that ended keeps its finalizer only while something of it is not over."""
    plan = read.plan
    if await _take_back(context, read, faults):
        return context.active_seconds
    context.orders.pop(plan.metadata.name, None)
    context.facts.forget(UPGRADE_PLANS.kind, plan.metadata.name)
    metrics.show_blockers(plan.metadata.name, {})
    await force_requests.give_back(context, read.upgrades)
    await forget(context, read.upgrades)
    if plan.status.reserved_nodes:
        stuck = await reservations.let_go(context, plan.metadata.name, plan.status.reserved_nodes)
        plan = await record(context, UPGRADE_PLANS, plan.metadata, {"reservedNodes": sorted(stuck)})
        if stuck:
            return context.active_seconds
    await leftovers.release(context, read.requests)
    await own_requests.release(context, read.ignored)
    if names.FINALIZER in plan.metadata.finalizers:
        plan = await finalizers.take(context, UPGRADE_PLANS, plan.metadata)
    if rollbacks.wanted(plan):
        await rollbacks.ensure(context, read, plan)
    return None
