"""Upgrades that a stack orders by itself: first drivers, new kernels, and nodes whose upgrade was deleted under way.

Their names follow from what they are for and from the attempt, so that ordering them again after a restart makes none
twice. Of those that failed at a node the last one stays, to say why; older ones are deleted, so that a node that fails
for weeks fills nothing.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES, PODS
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core import timing
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack import unplanned_upgrades
from upgrader.core.gpu_stack.unplanned_upgrades import Attempt, Need
from upgrader.core.model.fleet import ImageFacts, NodeFacts, Target
from upgrader.core.model.phases import NodePhase, PlanPhase, UpgradeReason, ends
from upgrader.core.workloads.gangs import ENDED
from upgrader.reconcile.facts.pod_facts import ours
from upgrader.reconcile.gpu_stack import driver_removal
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.node_upgrade.orphaned_claims import still_orphaned, unmark
from upgrader.reconcile.observe.revisions import read_target
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import daemonsets
from upgrader.reconcile.render import custom_objects
from upgrader.reconcile.runtime.context import Context, create_once
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.stack.naming import UPGRADE

log = structlog.get_logger()


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A node upgrade that is to be ordered now, with what its node's labels will choose."""

    order: custom_objects.Order
    target: Target
    image: ImageFacts


async def due(context: Context, read: StackReading, sightings: Sightings, goal: Target, faults: Faults) -> list[Due]:
    """The upgrades that nodes need now; `goal` is what a node without a driver is given.

    Marks of upgrades that are no more and had changed nothing are taken away here, and drivers that fit no kernel.
    """
    catalogue = Catalogue(read.snapshot.images)
    broken = {one.uid for one in read.snapshot.nodes if unplanned_upgrades.need(one, catalogue) is Need.REPAIR}
    sightings.keep(read.stack.metadata.name, broken)
    under_way = {one.spec.node.uid for one in read.own_upgrades if not ends(one.status.phase)}
    found: list[Due] = []
    for node in read.snapshot.nodes:
        if not node.left_alone and node.uid not in under_way:
            with faults.contained(f"node {node.name}"):
                one = await _due_at(context, read, sightings, node, goal, catalogue)
                found += [one] if one is not None else []
    return found


async def _due_at(
    context: Context, read: StackReading, sightings: Sightings, node: NodeFacts, goal: Target, catalogue: Catalogue
) -> Due | None:
    orphaned = node.claimed_by in read.orphans
    if node.claimed_by and not orphaned:
        return None
    fresh = await still_orphaned(context, read.upgrades, node) if orphaned else None
    if orphaned and fresh is None:
        return None
    match unplanned_upgrades.need(node, catalogue, orphaned=orphaned):
        case Need.UNMARK if fresh is not None:
            await unmark(context, fresh)
        case Need.INSTALL:
            return await _install(context, read, node, goal, catalogue)
        case Need.REPAIR:
            now, apart = context.clock.now(), context.active_seconds
            if sightings.twice(read.stack.metadata.name, node, now, apart):
                return await _bring_back(context, read, node, goal, catalogue)
        case _:
            pass
    return None


async def order(context: Context, read: StackReading, one: Due) -> None:
    """Make the NodeUpgrade; its operands first, which change no node by themselves."""
    await daemonsets.ensure(context, read.stack, one.target, one.image)
    log.info(
        "upgrade ordered",
        node=one.order.node.name,
        reason=one.order.reason.value,
        attempt=one.order.attempt,
        revision=one.order.target.revision,
    )
    await create_once(context, NODE_UPGRADES, custom_objects.node_upgrade(one.order))


async def prune(context: Context, read: StackReading) -> None:
    """Delete failed upgrades after which another upgrade to their node has ended."""
    for upgrades in read.upgrades_of_node.values():
        last = latest(upgrades)
        for one in upgrades:
            older = one is not last and one.status.phase is NodePhase.FAILED and one.metadata.uid not in read.claims
            if older and one.metadata.deletion_timestamp is None:
                context.leadership.check()
                await context.cluster.delete(NODE_UPGRADES, one.metadata)


def latest(upgrades: Iterable[NodeUpgrade]) -> NodeUpgrade | None:
    """The upgrade that ended last."""
    ended = (one for one in upgrades if ends(one.status.phase))
    return max(ended, key=lambda one: (_ended_at(one), one.spec.attempt), default=None)


def _ended_at(upgrade: NodeUpgrade) -> datetime:
    # One that was taken back before its first step has none.
    said = upgrade.status.steps[-1].ended_at if upgrade.status.steps else None
    return timing.parse(said or upgrade.metadata.creation_timestamp)


async def install_target(context: Context, read: StackReading) -> Target:
    """New nodes get what was approved: the running plan's revision, else the one that the pool has."""
    running = read.running
    wanted = read.stack.status.current_revision
    if running is not None and running.status.phase is not PlanPhase.ABORTING:
        wanted = running.spec.target_revision
    known = await read_target(context, read.stack.metadata.name, wanted) if wanted else None
    return (known or read.target).as_it_runs


async def _install(
    context: Context, read: StackReading, node: NodeFacts, goal: Target, catalogue: Catalogue
) -> Due | None:
    image = catalogue.wanted(node, goal)
    if image is None or not node.ready or node.name in read.occupied:
        return None
    if node.claimed_by and await _still_upgrade(context, node):
        return None
    source = custom_objects.present_state(node, None, None)
    source = msgspec.structs.replace(source, kubelet_binary=goal.kubelet_binary, resource_name=goal.resource_name)
    return _due(context, read, node, UpgradeReason.INSTALL, source, (goal, image))


async def _bring_back(
    context: Context, read: StackReading, node: NodeFacts, goal: Target, catalogue: Catalogue
) -> Due | None:
    """To the revision that the node had, with the image for its new kernel.

    Without one its driver is taken away, so that nothing crash-loops, and it waits for that image; meanwhile it may be
    given what was approved for its pool, where there is an image of that.
    """
    revision = node.removed_driver.revision if node.removed_driver is not None else node.revision
    had = await read_target(context, read.stack.metadata.name, revision) if revision else None
    had = had.as_it_runs if had is not None else goal
    image = catalogue.wanted(node, had)
    if image is None and node.removed_driver is None:
        await driver_removal.remove_driver(context, read, node)
        return None
    if image is None:
        return await _install(context, read, node, goal, catalogue)
    source = custom_objects.present_state(node, had, catalogue.of(node))
    return _due(context, read, node, UpgradeReason.REPAIR, source, (had, image))


def _due(
    context: Context,
    read: StackReading,
    node: NodeFacts,
    reason: UpgradeReason,
    source: NodeState,
    goal: tuple[Target, ImageFacts],
) -> Due | None:
    state = custom_objects.wanted_state(*goal)
    before = [
        Attempt(number=one.spec.attempt, ended_at=_ended_at(one) if ends(one.status.phase) else None)
        for one in read.upgrades_of_node.get(node.uid, ())
        if one.metadata.name == _name(node, reason, state, one.spec.attempt)
    ]
    attempt = unplanned_upgrades.next_attempt(before, context.clock.now())
    if attempt is None:
        return None
    ordered = custom_objects.Order(
        name=_name(node, reason, state, attempt),
        node=node,
        stack=read.stack.metadata.name,
        group=custom_objects.lone_group(node.name),
        reason=reason,
        source=source,
        target=state,
        attempt=attempt,
        takes_over=node.claimed_by,
    )
    return Due(order=ordered, target=goal[0], image=goal[1])


def _name(node: NodeFacts, reason: UpgradeReason, state: NodeState, attempt: int) -> str:
    # The boot is part of the name: a node may need the same repair again (kernel A, B, A), and then at once.
    identity = (reason.value, node.uid, node.boot_id, state.revision, state.driver_key, node.claimed_by, str(attempt))
    return custom_objects.upgrade_name(node.name, *identity)


async def _still_upgrade(context: Context, node: NodeFacts) -> bool:
    """Whether the upgrade Job of the upgrade that is no more still works on the node: it is waited for."""
    pods = await context.cluster.list(PODS, fields=f"spec.nodeName={node.name}")
    mine = (pod for pod in pods if ours(pod, context.stack.namespace))
    return any(pod.metadata.labels[names.LABEL_COMPONENT] == UPGRADE and pod.status.phase not in ENDED for pod in mine)
