"""Reconciler of GpuStacks: keep the revision, count drift, install new nodes, repair nodes with a new kernel.

Only a plan changes running nodes; a stack by itself installs nodes without a driver, and repairs nodes after a reboot.
Its upgrades have a finalizer and outlive it: they are reverted or ended when the stack is deleted.
"""

from collections.abc import Sequence

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade, UpgradePlan
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.core.model.fleet import StoppedOwner, Target
from upgrader.core.model.phases import is_final
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.owner_objects import stopped_owners
from upgrader.reconcile.checkpoint_request import abandoned_owners
from upgrader.reconcile.checkpoint_request.orphaned_annotations import (
    annotated_pods,
    note_refused_pods,
    remove_annotations,
)
from upgrader.reconcile.facts.gangs import rules_for
from upgrader.reconcile.facts.operand_pods import own_pods
from upgrader.reconcile.gpu_stack import (
    drift_status,
    history,
    image_wishes,
    proposals,
    stack_status,
    unplanned_upgrades,
)
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.node_upgrade.upgrade_actions import drop_finalizers
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.revisions import ensure_revision, former_resources
from upgrader.reconcile.observe.stack_reading import StackReading, claims_of
from upgrader.reconcile.operands import node_features, nondisruptive_operands, operands
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context, with_fresh_pods
from upgrader.reconcile.runtime.isolation import PASSING, Faults, faults_of, write_step_failed
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_view import NODES_AT_ONCE, OpenGroup
from upgrader.reconcile.upgrade_plan import reservations
from upgrader.telemetry import metrics


async def reconcile_stack(context: Context, name: str, sightings: Sightings) -> float | None:
    """One step of the stack; returns seconds until the next, None when it is deleted and nothing of it is open.

    Raises:
        ClusterError: the API server refused or did not answer; the step is repeated.
    """
    stack = await context.cluster.get(GPU_STACKS, name)
    if stack is None or stack.metadata.deletion_timestamp is not None:
        sightings.forget_stack(name)
        context.heard.forget_stack(name)
        context.facts.forget(GPU_STACKS.kind, name)
        return await _leave_stack(context, name)
    faults = faults_of(GPU_STACKS, stack.status.conditions)
    try:
        pause = await _go_on(context, stack, sightings, faults)
    except PASSING:
        raise
    except Exception as error:  # written into the status, then raised unchanged
        faults.record_error(f"stack {name}", error)
        await write_step_failed(context, GPU_STACKS, name, stack.status.conditions, faults)
        raise
    await write_step_failed(context, GPU_STACKS, name, stack.status.conditions, faults)
    faults.raise_fatal()
    return pause


async def _go_on(context: Context, stack: GpuStack, sightings: Sightings, faults: Faults) -> float:
    """Step open node upgrades first, from their own objects; then do everything that may fail."""
    name = stack.metadata.name
    ordered = await _list_unplanned_upgrades(context, name)
    active = await _step_upgrades(context, ordered, faults, undo=False)
    with faults.contained("upgrades that have ended"):
        await force_requests.release_nodes(context, ordered)
        await drop_finalizers(context, ordered)
    target = await _ensure_target(context, stack)
    if isinstance(target, str):
        left = await _release_without_revision(context, stack, faults)
        await stack_status.write_refusal(context, stack, target, left)
        return context.active_seconds if active or left else context.idle_seconds
    read = await _read_stack(context, stack, target)
    if read is None:
        return context.active_seconds
    left = await _release_gangs(
        context, stack, read.snapshot.stopped, read.asked, read.plans, faults
    )  # before everything else
    goal = await unplanned_upgrades.install_target(context, read)
    made = await _care_for_nodes(context, read, goal, sightings, faults)
    if not made:  # upgrades that were just created are not in the reading, and need their operands
        await operands.sweep_daemonsets(context, read)
    labelling = await node_features.label_nodes(context, stack, read.reporting)
    answered = await _answer_drift(context, read, goal, sightings)
    refused = await nondisruptive_operands.ensure_operands(context, read)
    await stack_status.write_status(context, read, labelling, answered, refused, left)
    with faults.contained("history"):
        await history.prune_history(context, read)
    once = sightings.has_single_sighting(name, context.clock.now(), context.active_seconds)
    soon = active or made or labelling.more or once
    return context.active_seconds if soon else context.idle_seconds


async def with_operands(context: Context) -> set[str]:
    """Names of stacks that have DaemonSets, including deleted stacks, which have no event after a restart.

    Raises:
        ClusterError: the API server refused or did not answer.
    """
    daemonsets = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=names.LABEL_STACK)
    return {daemonset.metadata.labels[names.LABEL_STACK] for daemonset in daemonsets}


async def _read_stack(context: Context, stack: GpuStack, target: Target) -> StackReading | None:
    """Read the inputs of a step; None while the nodes are not in sync."""
    nodes, version = context.nodes.snapshot(), await context.cluster.version()
    if nodes is None:
        return None
    around = await cluster_snapshot.read_around(context.cluster, context.stack.namespace, context.workloads)
    seen = msgspec.structs.replace(around, nodes=nodes, api_server_version=version)
    name = stack.metadata.name
    former = await former_resources(context, name, target.resource_name)
    gpus = PoolGpus(resource=target.resource_name, former=former)
    kept = context.facts.caches_of(GPU_STACKS.kind, name)
    snapshot = cluster_snapshot.snapshot_of(seen, stack.spec, gpus, context.clock.now(), stack=name, kept=kept)
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=f"{names.LABEL_STACK}={name}")
    if claims_of(snapshot) - {upgrade.metadata.uid for upgrade in upgrades}:
        upgrades = await context.cluster.list(NODE_UPGRADES)
    return StackReading(
        stack=stack,
        target=target,
        plans=[plan for plan in await context.cluster.list(UPGRADE_PLANS) if plan.spec.stack == name],
        upgrades=upgrades,
        snapshot=snapshot,
        drift=find_drift(snapshot, target),
        reporting=own_pods(seen.pods, context.stack.namespace, name),
        asked=annotated_pods(seen.pods),
    )


async def _release_without_revision(
    context: Context, stack: GpuStack, faults: Faults
) -> list[abandoned_owners.AbandonedOwner]:
    """`_release_gangs` for a stack without a valid revision: its gangs must not stay stopped."""
    workload = await context.workloads.read(context.cluster)
    plans = [plan for plan in await context.cluster.list(UPGRADE_PLANS) if plan.spec.stack == stack.metadata.name]
    return await _release_gangs(
        context, stack, stopped_owners(workload.works), annotated_pods(workload.pods), plans, faults
    )


async def _release_gangs(
    context: Context,
    stack: GpuStack,
    stopped: Sequence[StoppedOwner],
    asked: Sequence[Pod],
    plans: Sequence[UpgradePlan],
    faults: Faults,
) -> list[abandoned_owners.AbandonedOwner]:
    """Restart owners and remove request annotations of deleted requests; returns owners that are not restarted yet.

    Args:
        context: ports.
        stack: the stack of this step.
        stopped: owners with a stop record, read before this call.
        asked: pods with request annotations, read before this call.
        plans: plans of the stack.
        faults: of this step.
    """
    left = await abandoned_owners.restart_owners(
        context,
        stopped,
        plans,
        resource=stack.spec.device_plugin.resource_name,
        late=abandoned_owners.is_overdue(stack, context.clock.now()),
    )
    with faults.contained("pods whose requests were deleted"):
        note_refused_pods(await remove_annotations(context, asked), faults)
    return left


async def _ensure_target(context: Context, stack: GpuStack) -> Target | str:
    try:
        rules_for(stack.spec)
        return await ensure_revision(context, stack)
    except RegistryError as error:
        return f"the registry did not respond, trying again: {error.brief}"
    except ConfigurationError as error:
        return str(error)


async def _care_for_nodes(
    context: Context, read: StackReading, goal: Target, sightings: Sightings, faults: Faults
) -> bool:
    """Create the upgrades that nodes need; whether there are any. `goal` is the target of a node without a driver."""
    await image_wishes.ensure_images(context, read, goal)
    if await unplanned_upgrades.due_upgrades(context, read, sightings, goal, faults):
        # The pods on a node decide whether it is installed, so they are listed again instead of a shared reading.
        now = await _read_stack(with_fresh_pods(context), read.stack, read.target)
        due = await unplanned_upgrades.due_upgrades(context, now, sightings, goal, faults) if now is not None else []
    else:
        due = []
    for upgrade in due:
        with faults.contained(f"node {upgrade.order.node.name}"):
            await unplanned_upgrades.order_upgrade(context, read, upgrade)
    with faults.contained("upgrades that failed before"):
        await unplanned_upgrades.prune_failed_upgrades(context, read)
    pool = (context.nodes.snapshot() or {}).values()
    await reservations.release_stale_reservations(
        context, [node for node in pool if cluster_snapshot.in_pool(node, read.stack.spec)]
    )
    return bool(due)


async def _answer_drift(
    context: Context, read: StackReading, goal: Target, sightings: Sightings
) -> drift_status.DriftDecision:
    """Respond to persistent drift without a user."""
    now = context.clock.now()
    steady = sightings.record_nodes(read.target, read.snapshot.nodes, read.drift, now)
    await image_wishes.prune_images(context, read)
    proposal = await proposals.answer_drift(context, read, steady)
    failed = unplanned_upgrades.failed_adoptions(read, goal)
    return drift_status.DriftDecision(goal=goal, proposal=proposal, steady=steady, failed_adoptions=failed)


async def _leave_stack(context: Context, name: str) -> float | None:
    """Clean up a deleted stack: its upgrades are reverted if no driver is off yet, else completed."""
    upgrades, faults = await _list_unplanned_upgrades(context, name), faults_of(GPU_STACKS)
    left = await _step_upgrades(context, upgrades, faults, undo=True)
    metrics.show_faults(GPU_STACKS.kind, name, len(faults.errors))
    faults.raise_fatal()
    if left:
        return context.active_seconds
    await drop_finalizers(context, upgrades)
    labelled = not await node_features.remove_labels(context, name)
    open_upgrades = [upgrade for upgrade in await _list_upgrades(context, name) if not is_final(upgrade.status.phase)]
    # A node upgrade that a plan completes needs the operands that it turns on again.
    pause = context.active_seconds if open_upgrades else await operands.remove_operands(context, name)
    return context.active_seconds if labelled else pause


async def _list_upgrades(context: Context, name: str) -> Sequence[NodeUpgrade]:
    return await context.cluster.list(NODE_UPGRADES, labels=f"{names.LABEL_STACK}={name}")


async def _list_unplanned_upgrades(context: Context, name: str) -> list[NodeUpgrade]:
    return [upgrade for upgrade in await _list_upgrades(context, name) if upgrade.spec.plan is None]


async def _step_upgrades(context: Context, upgrades: Sequence[NodeUpgrade], faults: Faults, *, undo: bool) -> bool:
    """Step each upgrade without a plan; each is its own group, and its errors do not stop the others."""
    active, crowd = (
        [upgrade for upgrade in upgrades if not is_final(upgrade.status.phase)],
        group_reconciler.Crowd(taken=True),
    )

    async def drive(upgrade: NodeUpgrade) -> None:
        resource = upgrade.spec.target.resource_name
        group = OpenGroup(name=upgrade.spec.group, resource=resource, upgrades=[upgrade], undo=undo)
        with faults.contained(f"node {upgrade.spec.node.name}"):
            await group_reconciler.reconcile_group(context, group, faults, crowd)

    await side_by_side.for_each(active, drive, NODES_AT_ONCE)
    return bool(active)
