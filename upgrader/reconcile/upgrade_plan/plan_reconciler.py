"""Reconciler of UpgradePlans: read, decide (core.upgrade_plan), record a batch before it exists, step its groups."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest, UpgradePlan
from upgrader.core.errors import REFUSED, ConfigurationError, LostLeadershipError, describe_error
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, is_final
from upgrader.core.upgrade_plan import plan_machine
from upgrader.core.upgrade_plan.plan_machine import PlanDecision
from upgrader.reconcile.checkpoint_request.live_owners import read_owner
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.node_upgrade.upgrade_actions import drop_finalizers
from upgrader.reconcile.observe import cluster_snapshot, own_requests
from upgrader.reconcile.observe.durations import UpgradeHistory, learn_durations, past_of
from upgrader.reconcile.observe.listed_nodes import list_nodes
from upgrader.reconcile.observe.revisions import former_resources, read_target
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context, record_status, with_fresh_pods
from upgrader.reconcile.runtime.isolation import PASSING, Faults, faults_of, write_step_failed
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


async def reconcile_plan(context: Context, name: str) -> float | None:
    """One step of the plan; returns seconds until the next step, None when nothing is left to do.

    Raises:
        ClusterError: the API server refused or did not answer; the step is repeated.
    """
    plan = await context.cluster.get(UPGRADE_PLANS, name)
    if plan is None:
        return await _without_plan(context, name)
    over = is_final(plan.status.phase)
    if names.FINALIZER not in plan.metadata.finalizers and plan.metadata.deletion_timestamp is None and not over:
        plan = await finalizers.add_finalizer(context, UPGRADE_PLANS, plan.metadata)
    read, faults = await _read_plan(context, plan), faults_of(UPGRADE_PLANS, plan.status.conditions)
    try:
        pause = await (_finish_plan if over else _go_on)(context, read, faults)
    except PASSING:
        raise
    except Exception as error:  # written into the status, then raised unchanged
        faults.record_error(f"plan {name}", error)
        await write_step_failed(context, UPGRADE_PLANS, name, plan.status.conditions, faults)
        raise
    await write_step_failed(context, UPGRADE_PLANS, name, plan.status.conditions, faults)
    faults.raise_fatal()
    return pause


async def _go_on(context: Context, read: PlanReading, faults: Faults) -> float | None:
    """Step stopped gangs first, from their own objects; then read objects of others, which may fail."""
    drive = Drive(context=context, faults=faults, crowd=Crowd(taken=_has_restarting_gang(read.requests)))
    await drive.step_begun_groups(read, undo=_must_undo(read))
    left = await _take_back(context, read, faults)
    if drive.driven or left:  # that takes time, and a user may have changed the plan
        plan = await context.cluster.get(UPGRADE_PLANS, read.plan.metadata.name)
        if plan is None:
            return context.active_seconds
        read = replace(read, plan=plan)
    read = await _read_surroundings(context, read, faults)
    decision = plan_machine.decide(plan_view.build_plan_view(read, context.clock.now()))
    if decision.start_batch or _pauses_for_approval(read, decision):
        # All plans share the budget: another plan may have started a batch since the snapshot. Everything is read
        # again, and no other plan starts a batch before this one is written. A pause that a user must end is not
        # decided from a shared list of pods either: it still contains a job that has just ended.
        async with context.gates.batches:
            fresh = await list_nodes(context)
            read = await _read_surroundings(fresh, await _read_plan(fresh, read.plan), faults)
            decision = plan_machine.decide(plan_view.build_plan_view(read, context.clock.now()))
            read = await _write_decision(context, read, decision)
    else:
        read = await _write_decision(context, read, decision)
    with faults.contained("objects that have ended"):
        await _release_objects(context, read)
        await pruning.prune_objects(context, read)
    if read.open_batch is not None:
        await drive.step_remaining_groups(read, undo=decision.undo)
    if read.open_batch is not None or left or is_final(read.plan.status.phase):
        return context.active_seconds
    return (
        context.idle_seconds
        if decision.phase is read.plan.status.phase and not decision.end_batch
        else context.active_seconds
    )


def _pauses_for_approval(read: PlanReading, decision: PlanDecision) -> bool:
    return decision.reason == plan_machine.LIMITS_EXCEEDED and read.plan.status.reason != decision.reason


def _must_undo(read: PlanReading) -> bool:
    """Whether the plan reverts what it has begun; decided without reads that may fail."""
    plan, stack = read.plan, read.stack
    deleted = plan.metadata.deletion_timestamp is not None
    present = stack is not None and stack.metadata.deletion_timestamp is None
    aborted = plan_machine.is_aborted(plan.spec.state, deleted=deleted, stack_present=present)
    return plan.status.phase is PlanPhase.ABORTING or aborted


def _has_restarting_gang(requests: Sequence[CheckpointRequest]) -> bool:
    return any(request.status.phase is RequestPhase.RESTARTING for request in requests)


async def _without_plan(context: Context, name: str) -> float | None:
    """Revert what a deleted plan has begun."""
    selector = f"{names.LABEL_PLAN}={name}"
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=selector)
    listed = await context.cluster.list(CHECKPOINT_REQUESTS, labels=selector)
    requests, others = own_requests.sort_out(listed, None, upgrades)
    await own_requests.drop_finalizers(context, others)
    context.facts.forget(UPGRADE_PLANS.kind, name)
    faults = faults_of(UPGRADE_PLANS)
    left = await leftovers.take_back(context, upgrades, requests, faults)
    metrics.show_faults(UPGRADE_PLANS.kind, name, len(faults.errors))
    faults.raise_fatal()
    if left:
        return context.active_seconds
    await drop_finalizers(context, upgrades)
    await leftovers.drop_finalizers(context, requests)
    return None


async def _take_back(context: Context, read: PlanReading, faults: Faults) -> bool:
    """Take back groups that the plan's started batch does not cover; whether there are any."""
    batch = read.open_batch
    covered = {group.name for group in batch.groups} if batch is not None else set()
    return await leftovers.take_back(context, read.upgrades, read.requests, faults, covered)


async def _write_decision(context: Context, read: PlanReading, decision: PlanDecision) -> PlanReading:
    """Write a decision into the plan's status, including a started batch; then reserve the nodes that it names."""
    ripe = reservations.nodes_to_reserve(read, decision)
    stuck = await reservations.release_reservations(
        context, read.plan.metadata.name, set(read.plan.status.reserved_nodes) - ripe
    )
    read = replace(read, reserved=ripe | stuck)
    write = _start_batch if decision.start_batch and read.forecast is not None else plan_status.write_status
    plan = await write(context, read, decision)
    await reservations.reserve_nodes(context, plan.metadata.name, ripe & reservations.completing_nodes(read))
    return replace(read, plan=plan)


async def _read_plan(context: Context, plan: UpgradePlan) -> PlanReading:
    """Read the plan's own objects: owners of jobs write none of these."""
    past = await _read_past(context, plan)
    others = [other for other in await context.cluster.list(UPGRADE_PLANS) if other.metadata.name != plan.metadata.name]
    waited_for = {
        other.spec.target_revision
        for other in others
        if plan.status.phase is other.status.phase is PlanPhase.PROPOSED and other.spec.stack == plan.spec.stack
    }
    upgrades = [
        upgrade for upgrade in past.upgrades if upgrade.metadata.labels.get(names.LABEL_PLAN) == plan.metadata.name
    ]
    labelled = [
        request for request in past.requests if request.metadata.labels.get(names.LABEL_PLAN) == plan.metadata.name
    ]
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
        kept=frozenset(
            [revision for revision in waited_for if await read_target(context, plan.spec.stack, revision) is not None]
        ),
    )


async def _read_surroundings(context: Context, read: PlanReading, faults: Faults) -> PlanReading:
    """Add the snapshot, if this step needs it, and a forecast between two batches."""
    plan, stack, target = read.plan, read.stack, read.target
    if stack is None or target is None or not _needs_snapshot(read):
        return read
    try:
        snapshot = await cluster_snapshot.read_snapshot(
            with_fresh_pods(context) if _needs_fresh_pods(read) else context,
            stack,
            target,
            former=await former_resources(context, plan.spec.stack, target.resource_name),
            method=plan.spec.checkpoint.method or "",
            reboots=True,
            kept=context.facts.caches_of(UPGRADE_PLANS.kind, plan.metadata.name),
        )
        if snapshot is None or read.open_batch is not None:
            return replace(read, snapshot=snapshot)
        return _forecast_rest(context, replace(read, snapshot=snapshot))
    except LostLeadershipError:
        raise
    except REFUSED as error:
        if read.open_batch is None:
            raise
        # Open groups continue: stopped gangs must not wait for a list that is refused.
        log.warning("the cluster cannot be read", because=error.brief, details=error.details)
        return read
    except Exception as error:  # noqa: BLE001 - a plan without a snapshot can still be aborted
        faults.record_error("the reading of the cluster", error)
        return replace(read, problem=f"the cluster cannot be read: {describe_error(error)}")


async def _read_past(context: Context, plan: UpgradePlan) -> UpgradeHistory:
    """Read the plan's own upgrades and requests; before a forecast also those that durations are learned from."""
    waits = not is_final(plan.status.phase) and all(batch.ended_at is not None for batch in plan.status.batches)
    return await past_of(context.cluster, plan.spec.stack, plan="" if waits else plan.metadata.name)


def _needs_snapshot(read: PlanReading) -> bool:
    """Whether this step needs a snapshot: to forecast, to create upgrades, to request checkpoints, to close nodes.

    The end of an abort needs it too: no gang may be left stopped then. While a batch only waits, no pods are read.
    """
    batch = read.open_batch
    if batch is None:
        return True
    if read.plan.status.phase is PlanPhase.ABORTING and all_ended(read):
        return True
    phases = [upgrade.status.phase for upgrade in of_batch(read.upgrades, batch.number)]
    waits = {NodePhase.PREPARED, NodePhase.TAINTING} if read.plan.spec.checkpoint.wait_for else {NodePhase.PREPARED}
    return len(phases) < sum(len(group.nodes) for group in batch.groups) or bool(waits.intersection(phases))


def _needs_fresh_pods(read: PlanReading) -> bool:
    """Whether the step depends on current pods: to create upgrades, to request checkpoints, to end."""
    batch, status = read.open_batch, read.plan.status
    if batch is None:  # before a batch is written, everything is read again anyway
        return status.phase is PlanPhase.ABORTING or status.reason == "BatchEnded"
    if read.plan.spec.checkpoint.wait_for:
        return True
    there = {(upgrade.spec.group, upgrade.spec.node.name) for upgrade in of_batch(read.upgrades, batch.number)}
    asked = {(request.spec.group, request.spec.gang) for request in of_batch(read.requests, batch.number)}
    return any(
        {(group.name, node) for node in group.nodes} - there or {(group.name, gang) for gang in group.gangs} - asked
        for group in batch.groups
    )


def _forecast_rest(context: Context, read: PlanReading) -> PlanReading:
    plan, snapshot, target = read.plan, read.snapshot, read.target
    if snapshot is None or target is None:
        return read
    now, durations = context.clock.now(), learn_durations(read.past.upgrades, read.past.requests)
    rest = rest_of(plan, snapshot, read.upgrades, read.requests, now)
    before = context.orders.get(plan.metadata.name, ())
    try:
        made = rest.forecast_rest(target, strategy_of(plan, now), now, durations, remainder=before)
    except ConfigurationError as error:  # an unknown time zone, windows that never open
        return replace(read, problem=str(error), cooling=rest.cooling)
    context.orders[plan.metadata.name] = made.batches
    return replace(read, forecast=made, cooling=rest.cooling)


async def _start_batch(context: Context, read: PlanReading, decision: PlanDecision) -> UpgradePlan:
    """Write the batch; its upgrades are created afterwards, also after a crash."""
    plan, made, snapshot = read.plan, read.forecast, read.snapshot
    if made is None or snapshot is None:
        raise AssertionError("a batch is started only from a forecast")
    number = ended_batches.started_batches(plan) + 1
    batch = batches.batch_status(context, plan, number, made.batches[0], snapshot)
    left = {node.revision for node in snapshot.nodes if node.revision and node.revision != plan.spec.target_revision}
    status = plan_status.render_status(context, read, decision) | {
        "batches": [msgspec.to_builtins(started) for started in (*plan.status.batches, batch)],
        "revisionsLeft": sorted(left | set(plan.status.revisions_left)),
    }
    written: UpgradePlan = await record_status(
        context, UPGRADE_PLANS, plan.metadata, status, left=plan.status.phase, entered=decision.phase
    )
    log.info("batch started", plan=plan.metadata.name, batch=number, groups=len(batch.groups))
    return written


async def _release_objects(context: Context, read: PlanReading) -> None:
    """Release deleted objects that nothing depends on: upgrades of ended batches, requests without a job."""
    open_batch = read.open_batch.number if read.open_batch is not None else None
    past = [upgrade for upgrade in read.upgrades if upgrade.metadata.labels.get(LABEL_BATCH) != str(open_batch)]
    await force_requests.release_nodes(context, past)
    await drop_finalizers(context, past)
    await own_requests.drop_finalizers(context, read.ignored)
    for request in read.requests:
        if is_final(request.status.phase) and request.metadata.deletion_timestamp is not None:
            owner = await read_owner(context, request.spec.owner, request.metadata.namespace)
            if owner.body is None and not owner.unread and names.FINALIZER in request.metadata.finalizers:
                await finalizers.remove_finalizer(context, CHECKPOINT_REQUESTS, request.metadata)


async def _finish_plan(context: Context, read: PlanReading, faults: Faults) -> float | None:
    """Clean up after an ended plan; it keeps its finalizer until all its objects have ended."""
    plan = read.plan
    if await _take_back(context, read, faults):
        return context.active_seconds
    context.orders.pop(plan.metadata.name, None)
    context.facts.forget(UPGRADE_PLANS.kind, plan.metadata.name)
    metrics.show_blockers(plan.metadata.name, {})
    await force_requests.release_nodes(context, read.upgrades)
    await drop_finalizers(context, read.upgrades)
    if plan.status.reserved_nodes:
        stuck = await reservations.release_reservations(context, plan.metadata.name, plan.status.reserved_nodes)
        plan = await record_status(context, UPGRADE_PLANS, plan.metadata, {"reservedNodes": sorted(stuck)})
        if stuck:
            return context.active_seconds
    await leftovers.drop_finalizers(context, read.requests)
    await own_requests.drop_finalizers(context, read.ignored)
    if names.FINALIZER in plan.metadata.finalizers:
        plan = await finalizers.remove_finalizer(context, UPGRADE_PLANS, plan.metadata)
    if rollbacks.needs_rollback(plan):
        await rollbacks.ensure_rollback_plan(context, read, plan)
    return None
