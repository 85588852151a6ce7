"""One step of a GpuStack: keep its revision, count drift, bring up new nodes and nodes with a new kernel.

What changes running nodes is a plan's; a stack by itself only installs where nothing was, and brings back what a reboot
broke.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Condition
from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import GpuStack, NodeState, NodeUpgrade, UpgradePlan
from upgrader.core import timing
from upgrader.core.catalogue import Catalogue
from upgrader.core.drift import NodeDrift, drift
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.core.fleet import NodeFacts, Snapshot, Target
from upgrader.core.phases import PlanPhase, VisitReason, ends
from upgrader.core.rollout import UNDER_WAY
from upgrader.reconcile import batches, closures, observe, operands, orders
from upgrader.reconcile.context import Context, record
from upgrader.reconcile.revisions import ensure_revision, read_target
from upgrader.reconcile.sightings import Sightings
from upgrader.reconcile.visits import forget

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Read:
    """Everything that one step of a stack looked at."""

    stack: GpuStack
    target: Target
    plans: Sequence[UpgradePlan]
    visits: Sequence[NodeUpgrade]
    snapshot: Snapshot
    drift: tuple[NodeDrift, ...]

    @property
    def running(self) -> UpgradePlan | None:
        """The plan under way."""
        return next((one for one in self.plans if one.status.phase in UNDER_WAY), None)


async def step(context: Context, name: str, sightings: Sightings) -> float | None:
    """One step of the stack; seconds until the next, None when it is gone.

    Raises:
        ClusterError: the API server refused or did not answer; the step is made again.
    """
    stack = await context.cluster.get(GPU_STACKS, name)
    if stack is None or stack.metadata.deletion_timestamp is not None:
        mine = await context.cluster.list(NODE_UPGRADES, labels=f"{names.LABEL_STACK}={name}")
        await forget(context, (one for one in mine if one.spec.plan is None))
        return None
    target = await _target(context, stack)
    if isinstance(target, str):
        await _refuse(context, stack, target)
        return context.idle_seconds
    selector = f"{names.LABEL_STACK}={name}"
    visits = [one for one in await context.cluster.list(NODE_UPGRADES, labels=selector) if one.spec.plan is None]
    plans = [one for one in await context.cluster.list(UPGRADE_PLANS) if one.spec.stack == name]
    snapshot = await observe.read_snapshot(
        context.cluster,
        context.nodes,
        stack,
        target,
        context.clock.now(),
        api_server_version=await context.cluster.version(),
    )
    if snapshot is None:
        return context.active_seconds
    read = Read(
        stack=stack, target=target, plans=plans, visits=visits, snapshot=snapshot, drift=drift(snapshot, target)
    )
    await forget(context, visits)
    made = await _order_visits(context, read, sightings)
    active = await _drive(context, visits)
    await operands.sweep(context, read)
    await _write(context, read)
    return context.active_seconds if active or made or sightings.waiting(name) else context.idle_seconds


async def _target(context: Context, stack: GpuStack) -> Target | str:
    try:
        return await ensure_revision(context, stack)
    except RegistryError as error:
        return f"the registry did not answer, trying again: {error.brief}"
    except ConfigurationError as error:
        return str(error)


async def _order_visits(context: Context, read: Read, sightings: Sightings) -> bool:
    """Installs for nodes that never had a driver of ours, and bring-backs for nodes whose kernel changed."""
    busy = {one.spec.node.uid for one in read.visits if not ends(one.status.phase)}
    tried = {one.metadata.name for one in read.visits}
    catalogue = Catalogue(read.snapshot.images)
    goal = await _install_target(context, read)
    made = False
    for node in read.snapshot.nodes:
        if node.skip or node.uid in busy or (node.visit and not _orphan(read, node)):
            continue
        if not node.driver_key:
            made |= await _install(context, read, node, goal, catalogue, tried)
        elif _kernel_changed(node, catalogue) and sightings.twice(
            read.stack.metadata.name, node, context.clock.now(), context.active_seconds
        ):
            made |= await _bring_back(context, read, node, catalogue, tried)
    return made


def _orphan(read: Read, node: NodeFacts) -> bool:
    return node.visit not in {one.metadata.uid for one in read.visits} and read.running is None


async def _install_target(context: Context, read: Read) -> Target:
    """New nodes get what was approved: the running plan's revision, else the one that the pool has."""
    running = read.running
    wanted = running.spec.target_revision if running is not None else read.stack.status.current_revision
    known = await read_target(context, read.stack.metadata.name, wanted) if wanted else None
    return known or read.target


async def _install(
    context: Context, read: Read, node: NodeFacts, goal: Target, catalogue: Catalogue, tried: set[str]
) -> bool:
    image = catalogue.wanted(node, goal)
    occupied = {name for gang in read.snapshot.gangs for name in gang.nodes}
    if image is None or not node.ready or node.name in occupied:
        return False
    state = orders.wanted_state(goal, image)
    if _name(node, VisitReason.INSTALL, state) in tried:
        return False
    await batches.ensure_operands(context, read.stack, goal, image)
    source = orders.present_state(node, None, None)
    source = msgspec.structs.replace(source, kubelet_binary=goal.kubelet_binary, resource_name=goal.resource_name)
    return await _order(context, read, node, VisitReason.INSTALL, source, state)


def _kernel_changed(node: NodeFacts, catalogue: Catalogue) -> bool:
    image = catalogue.of(node)
    return image is not None and bool(node.kernel) and image.kernel != node.kernel


async def _bring_back(context: Context, read: Read, node: NodeFacts, catalogue: Catalogue, tried: set[str]) -> bool:
    """To the revision that the node had, with the image for its new kernel; without one nothing is ordered."""
    had = await read_target(context, read.stack.metadata.name, node.revision) if node.revision else None
    had = had or await _install_target(context, read)
    image = catalogue.wanted(node, had)
    if image is None:
        return False
    state = orders.wanted_state(had, image)
    source = orders.present_state(node, had, catalogue.of(node))
    if _name(node, VisitReason.BRING_BACK, state) in tried:
        return False
    await batches.ensure_operands(context, read.stack, had, image)
    return await _order(context, read, node, VisitReason.BRING_BACK, source, state)


def _name(node: NodeFacts, reason: VisitReason, state: NodeState) -> str:
    # The boot is part of the name: a node may need the same bring-back again (kernel A, B, A), but once a boot.
    return orders.visit_name(node.name, reason.value, node.uid, node.boot_id, state.revision, state.driver_key)


async def _order(
    context: Context, read: Read, node: NodeFacts, reason: VisitReason, source: NodeState, target: NodeState
) -> bool:
    order = orders.Order(
        name=_name(node, reason, target),
        node=node,
        stack=read.stack.metadata.name,
        closure=orders.lone_closure(node.name),
        reason=reason,
        source=source,
        target=target,
    )
    log.info("visit ordered", node=node.name, reason=reason.value, revision=target.revision)
    return await batches.create_once(context, NODE_UPGRADES, orders.node_upgrade(order))


async def _drive(context: Context, visits: Sequence[NodeUpgrade]) -> bool:
    """One step of each visit without a plan; each is a closure of its own."""
    active = [one for one in visits if not ends(one.status.phase)]
    for one in active:
        await closures.step(
            context, closures.Closure(name=one.spec.closure, resource=one.spec.target.resource_name, visits=[one])
        )
    return bool(active)


async def _refuse(context: Context, stack: GpuStack, message: str) -> None:
    condition = _condition(context, stack, "Valid", "False", "RevisionNotMade", message)
    if condition not in stack.status.conditions:
        await record(context, GPU_STACKS, stack.metadata, {"conditions": [msgspec.to_builtins(condition)]})


async def _write(context: Context, read: Read) -> None:
    stack, now_drifted = read.stack, [one for one in read.drift if one.drifted]
    ready = sum(node.revision == read.target.revision and not node.taken for node in read.snapshot.nodes)
    current = stack.status.current_revision
    if current is None or (read.snapshot.nodes and not now_drifted):
        current = read.target.revision
    counts = operands.drift_counts(read.drift)
    rolled_back = [
        one
        for one in read.plans
        if one.status.phase in {*UNDER_WAY, PlanPhase.COMPLETED}
        and one.spec.target_revision != read.target.revision
        and one.status.stack_revision == read.target.revision
    ]
    drifted = _condition(
        context,
        stack,
        "Drifted",
        "True" if now_drifted else "False",
        counts[0].reason if counts else "NoDrift",
        f"{len(now_drifted)} of {len(read.snapshot.nodes)} node(s) differ from revision {read.target.revision}",
    )
    status: dict[str, Any] = {
        "observedGeneration": stack.metadata.generation,
        "currentRevision": current,
        "updateRevision": read.target.revision,
        "blockedRevision": read.target.revision if rolled_back else None,
        "activePlan": read.running.metadata.name if read.running is not None else None,
        "nodes": len(read.snapshot.nodes),
        "ready": ready,
        "drifted": len(now_drifted),
        "drift": [msgspec.to_builtins(one) for one in counts],
        "conditions": [
            msgspec.to_builtins(one)
            for one in (_condition(context, stack, "Valid", "True", "RevisionMade", "the revision is kept"), drifted)
        ],
    }
    present = msgspec.to_builtins(stack.status)
    if any(present.get(key) != value and (present.get(key) or value) for key, value in status.items()):
        await record(context, GPU_STACKS, stack.metadata, status)


def _condition(context: Context, stack: GpuStack, kind: str, status: str, reason: str, message: str) -> Condition:
    """The condition as it should be: its transition time moves only when its status does."""
    before = next((one for one in stack.status.conditions if one.type == kind), None)
    if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
        return before
    moved = timing.show(context.clock.now())
    if before is not None and before.status == status and before.last_transition_time is not None:
        moved = before.last_transition_time
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=moved)
