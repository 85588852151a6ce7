"""One step of a GpuStack: keep its revision, count drift, bring up new nodes and nodes with a new kernel.

What changes running nodes is a plan's; a stack by itself only installs where nothing was, and brings back what a reboot
broke. Its upgrades outlive it: they carry our finalizer, and are taken back or ended when it is deleted.
"""

from collections.abc import Sequence

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade, UpgradePlan
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.core.gpu_stack.drift import drift
from upgrader.core.model.fleet import StoppedOwner, Target
from upgrader.core.model.phases import ends
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.owner_objects import stopped_owners
from upgrader.reconcile.checkpoint_request import abandoned_owners
from upgrader.reconcile.checkpoint_request.orphaned_annotations import marked, show, take_away
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
from upgrader.reconcile.node_upgrade.upgrade_actions import forget
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.revisions import ensure_revision, former_resources
from upgrader.reconcile.observe.stack_reading import StackReading, claims_of
from upgrader.reconcile.operands import node_features, nondisruptive_operands, operands
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context, anew
from upgrader.reconcile.runtime.isolation import PASSING, Faults, faults_of, tell
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_view import NODES_AT_ONCE, UpgradeGroup
from upgrader.reconcile.upgrade_plan import reservations
from upgrader.telemetry import metrics


async def step(context: Context, name: str, sightings: Sightings) -> float | None:
    """One step of the stack; seconds until the next, None when it is gone and nothing of it is open.

    Raises:
        ClusterError: the API server refused or did not answer; the step is made again.
    """
    stack = await context.cluster.get(GPU_STACKS, name)
    if stack is None or stack.metadata.deletion_timestamp is not None:
        sightings.forget(name)
        context.heard.forget(name)
        context.facts.forget(GPU_STACKS.kind, name)
        return await _leave(context, name)
    faults = faults_of(GPU_STACKS, stack.status.conditions)
    try:
        pause = await _go_on(context, stack, sightings, faults)
    except PASSING:
        raise
    except Exception as error:  # told to people, then raised as it was
        faults.note(f"stack {name}", error)
        await tell(context, GPU_STACKS, name, stack.status.conditions, faults)
        raise
    await tell(context, GPU_STACKS, name, stack.status.conditions, faults)
    faults.check()
    return pause


async def _go_on(context: Context, stack: GpuStack, sightings: Sightings, faults: Faults) -> float:
    """Node upgrades that are under way first, from their own objects; then all that may fail."""
    name = stack.metadata.name
    ordered = await _ordered(context, name)
    active = await _drive(context, ordered, faults, undo=False)
    with faults.contained("upgrades that have ended"):
        await force_requests.give_back(context, ordered)
        await forget(context, ordered)
    target = await _target(context, stack)
    if isinstance(target, str):
        left = await _free_without_revision(context, stack, faults)
        await stack_status.refuse(context, stack, target, left)
        return context.active_seconds if active or left else context.idle_seconds
    read = await _read(context, stack, target)
    if read is None:
        return context.active_seconds
    left = await _free(context, stack, read.snapshot.stopped, read.asked, read.plans, faults)  # before all other care
    goal = await unplanned_upgrades.install_target(context, read)
    made = await _care(context, read, goal, sightings, faults)
    if not made:  # what was ordered just now is not among what was read, and needs its operands
        await operands.sweep(context, read)
    labelling = await node_features.label(context, stack, read.reporting)
    answered = await _answer(context, read, goal, sightings)
    refused = await nondisruptive_operands.ensure(context, read)
    await stack_status.write(context, read, labelling, answered, refused, left)
    with faults.contained("history"):
        await history.prune(context, read)
    once = sightings.once(name, context.clock.now(), context.active_seconds)
    soon = active or made or labelling.more or once
    return context.active_seconds if soon else context.idle_seconds


async def with_operands(context: Context) -> set[str]:
    """Names of stacks that have DaemonSets, among them stacks that are gone: no event tells of those after a restart.

    Raises:
        ClusterError: the API server refused or did not answer.
    """
    found = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=names.LABEL_STACK)
    return {one.metadata.labels[names.LABEL_STACK] for one in found}


async def _read(context: Context, stack: GpuStack, target: Target) -> StackReading | None:
    """None while the nodes are not in step."""
    nodes, version = context.nodes.snapshot(), await context.cluster.version()
    if nodes is None:
        return None
    around = await cluster_snapshot.read_around(context.cluster, context.stack.namespace, context.workloads)
    seen = msgspec.structs.replace(around, nodes=nodes, api_server_version=version)
    name = stack.metadata.name
    former = await former_resources(context, name, target.resource_name)
    gpus = PoolGpus(resource=target.resource_name, former=former)
    kept = context.facts.of(GPU_STACKS.kind, name)
    snapshot = cluster_snapshot.snapshot_of(seen, stack.spec, gpus, context.clock.now(), stack=name, kept=kept)
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=f"{names.LABEL_STACK}={name}")
    if claims_of(snapshot) - {one.metadata.uid for one in upgrades}:
        upgrades = await context.cluster.list(NODE_UPGRADES)
    return StackReading(
        stack=stack,
        target=target,
        plans=[one for one in await context.cluster.list(UPGRADE_PLANS) if one.spec.stack == name],
        upgrades=upgrades,
        snapshot=snapshot,
        drift=drift(snapshot, target),
        reporting=own_pods(seen.pods, context.stack.namespace, name),
        asked=marked(seen.pods),
    )


async def _free_without_revision(context: Context, stack: GpuStack, faults: Faults) -> list[abandoned_owners.Abandoned]:
    """The same as `_free` for a stack of which no revision can be made: that must keep no gang stopped."""
    found = await context.workloads.read(context.cluster)
    plans = [one for one in await context.cluster.list(UPGRADE_PLANS) if one.spec.stack == stack.metadata.name]
    return await _free(context, stack, stopped_owners(found.works), marked(found.pods), plans, faults)


async def _free(
    context: Context,
    stack: GpuStack,
    stopped: Sequence[StoppedOwner],
    asked: Sequence[Pod],
    plans: Sequence[UpgradePlan],
    faults: Faults,
) -> list[abandoned_owners.Abandoned]:
    """Restart owners and take marks of asking from pods whose request is gone; owners that are still to be restarted.

    Args:
        context: ports.
        stack: that looks.
        stopped: owners with our record of a stop, as they were read before this call.
        asked: pods with marks, likewise.
        plans: those of the stack.
        faults: of this step.
    """
    left = await abandoned_owners.restart_owners(
        context,
        stopped,
        plans,
        resource=stack.spec.device_plugin.resource_name,
        late=abandoned_owners.lateness(stack, context.clock.now()),
    )
    with faults.contained("pods whose requests are gone"):
        show(await take_away(context, asked), faults)
    return left


async def _target(context: Context, stack: GpuStack) -> Target | str:
    try:
        rules_for(stack.spec)
        return await ensure_revision(context, stack)
    except RegistryError as error:
        return f"the registry did not answer, trying again: {error.brief}"
    except ConfigurationError as error:
        return str(error)


async def _care(context: Context, read: StackReading, goal: Target, sightings: Sightings, faults: Faults) -> bool:
    """Order what nodes need of their stack; whether any was. `goal` is what a node without a driver is given."""
    await image_wishes.ensure(context, read, goal)
    if await unplanned_upgrades.due(context, read, sightings, goal, faults):
        # Whoever is on a node decides whether it is installed: pods are listed for that, not those of a shared reading.
        now = await _read(anew(context), read.stack, read.target)
        due = await unplanned_upgrades.due(context, now, sightings, goal, faults) if now is not None else []
    else:
        due = []
    for one in due:
        with faults.contained(f"node {one.order.node.name}"):
            await unplanned_upgrades.order(context, read, one)
    with faults.contained("upgrades that failed before"):
        await unplanned_upgrades.prune(context, read)
    pool = (context.nodes.snapshot() or {}).values()
    await reservations.sweep(context, [node for node in pool if cluster_snapshot.in_pool(node, read.stack.spec)])
    return bool(due)


async def _answer(context: Context, read: StackReading, goal: Target, sightings: Sightings) -> drift_status.Answered:
    """What is done about drift by itself, once it is seen to stay."""
    now = context.clock.now()
    steady = sightings.look(read.target, read.snapshot.nodes, read.drift, now)
    await image_wishes.prune(context, read)
    proposal = await proposals.answer(context, read, steady)
    return drift_status.Answered(goal=goal, proposal=proposal, steady=steady)


async def _leave(context: Context, name: str) -> float | None:
    """A stack that is deleted, or gone: its upgrades are taken back where no driver is off yet, else ended."""
    upgrades, faults = await _ordered(context, name), faults_of(GPU_STACKS)
    left = await _drive(context, upgrades, faults, undo=True)
    metrics.show_faults(GPU_STACKS.kind, name, len(faults.found))
    faults.check()
    if left:
        return context.active_seconds
    await forget(context, upgrades)
    labelled = not await node_features.leave(context, name)
    open_upgrades = [one for one in await _of(context, name) if not ends(one.status.phase)]
    # A node upgrade that a plan still ends needs the operands that it turns on again.
    pause = context.active_seconds if open_upgrades else await operands.leave(context, name)
    return context.active_seconds if labelled else pause


async def _of(context: Context, name: str) -> Sequence[NodeUpgrade]:
    return await context.cluster.list(NODE_UPGRADES, labels=f"{names.LABEL_STACK}={name}")


async def _ordered(context: Context, name: str) -> list[NodeUpgrade]:
    return [one for one in await _of(context, name) if one.spec.plan is None]


async def _drive(context: Context, upgrades: Sequence[NodeUpgrade], faults: Faults, *, undo: bool) -> bool:
    """One step of each upgrade without a plan; each is a group of its own, and keeps no other from its step."""
    active, crowd = [one for one in upgrades if not ends(one.status.phase)], group_reconciler.Crowd(taken=True)

    async def drive(one: NodeUpgrade) -> None:
        resource = one.spec.target.resource_name
        group = UpgradeGroup(name=one.spec.group, resource=resource, upgrades=[one], undo=undo)
        with faults.contained(f"node {one.spec.node.name}"):
            await group_reconciler.go(context, group, faults, crowd)

    await side_by_side.each(active, drive, NODES_AT_ONCE)
    return bool(active)
