"""Upgrades that a stack creates by itself: first drivers, new kernels, and nodes whose open upgrade was deleted.

Their names follow from purpose and attempt, so that a restarted controller creates none twice. Of the failed upgrades
of a node the last one is kept, for its message; older ones are deleted, so that their number stays bounded.
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
from upgrader.core.gpu_stack.adoption import ADOPTION_ATTEMPTS
from upgrader.core.gpu_stack.unplanned_upgrades import Attempt, NodeNeed
from upgrader.core.model.fleet import ImageFacts, NodeFacts, Target
from upgrader.core.model.phases import NodePhase, PlanPhase, UpgradeReason, is_final
from upgrader.core.workloads.gangs import ENDED
from upgrader.reconcile.facts.pod_facts import is_own_pod
from upgrader.reconcile.gpu_stack import driver_removal
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.node_upgrade.orphaned_claims import release_claim, still_orphaned
from upgrader.reconcile.observe.revisions import read_target
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import daemonsets
from upgrader.reconcile.render import custom_objects
from upgrader.reconcile.runtime.context import Context, create_once
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.stack.naming import UPGRADE

log = structlog.get_logger()


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A node upgrade to create now, with the target and the image of its operands."""

    order: custom_objects.Order
    target: Target
    image: ImageFacts


async def due_upgrades(
    context: Context, read: StackReading, sightings: Sightings, goal: Target, faults: Faults
) -> list[Due]:
    """The upgrades that nodes need now; `goal` is the target of a node without a driver.

    Claims of deleted upgrades that changed nothing are released here, and drivers without an image removed.
    """
    catalogue = Catalogue(read.snapshot.images)
    broken = {
        node.uid for node in read.snapshot.nodes if unplanned_upgrades.find_need(node, catalogue) is NodeNeed.REPAIR
    }
    sightings.keep_nodes(read.stack.metadata.name, broken)
    under_way = {upgrade.spec.node.uid for upgrade in read.own_upgrades if not is_final(upgrade.status.phase)}
    upgrades: list[Due] = []
    for node in read.snapshot.nodes:
        if not node.left_alone and node.uid not in under_way:
            with faults.contained(f"node {node.name}"):
                due = await _due_at(context, read, sightings, node, goal, catalogue)
                upgrades += [due] if due is not None else []
    return upgrades


async def _due_at(
    context: Context, read: StackReading, sightings: Sightings, node: NodeFacts, goal: Target, catalogue: Catalogue
) -> Due | None:
    orphaned = node.claimed_by in read.orphans
    if node.claimed_by and not orphaned:
        return None
    fresh = await still_orphaned(context, read.upgrades, node) if orphaned else None
    if orphaned and fresh is None:
        return None
    match unplanned_upgrades.find_need(node, catalogue, orphaned=orphaned):
        case NodeNeed.RELEASE if fresh is not None:
            await release_claim(context, fresh)
        case NodeNeed.INSTALL:
            return await _due_installation(context, read, node, goal, catalogue)
        case NodeNeed.REPAIR:
            now, apart = context.clock.now(), context.active_seconds
            if sightings.was_seen_before(read.stack.metadata.name, node, now, apart):
                return await _due_repair(context, read, node, goal, catalogue)
        case _:
            pass
    return None


async def order_upgrade(context: Context, read: StackReading, upgrade: Due) -> None:
    """Create the NodeUpgrade, after its operands, which change no node by themselves."""
    await daemonsets.ensure_daemonsets(context, read.stack, upgrade.target, upgrade.image)
    log.info(
        "upgrade ordered",
        node=upgrade.order.node.name,
        reason=upgrade.order.reason.value,
        attempt=upgrade.order.attempt,
        revision=upgrade.order.target.revision,
    )
    await create_once(context, NODE_UPGRADES, custom_objects.node_upgrade(upgrade.order))


async def prune_failed_upgrades(context: Context, read: StackReading) -> None:
    """Delete failed upgrades of a node that has a later ended upgrade."""
    for upgrades in read.upgrades_of_node.values():
        last = latest_ended_upgrade(upgrades)
        for upgrade in upgrades:
            older = (
                upgrade is not last
                and upgrade.status.phase is NodePhase.FAILED
                and upgrade.metadata.uid not in read.claims
            )
            if older and upgrade.metadata.deletion_timestamp is None:
                context.leadership.check()
                await context.cluster.delete(NODE_UPGRADES, upgrade.metadata)


def latest_ended_upgrade(upgrades: Iterable[NodeUpgrade]) -> NodeUpgrade | None:
    """The upgrade that ended last."""
    ended = (upgrade for upgrade in upgrades if is_final(upgrade.status.phase))
    return max(ended, key=lambda upgrade: (_ended_at(upgrade), upgrade.spec.attempt), default=None)


def _ended_at(upgrade: NodeUpgrade) -> datetime:
    # An upgrade that was withdrawn before its first step has no step.
    ended_at = upgrade.status.steps[-1].ended_at if upgrade.status.steps else None
    return timing.parse_time(ended_at or upgrade.metadata.creation_timestamp)


async def install_target(context: Context, read: StackReading) -> Target:
    """The approved target for new nodes: the running plan's revision, else the current one of the pool."""
    running = read.running
    wanted = read.stack.status.current_revision
    if running is not None and running.status.phase is not PlanPhase.ABORTING:
        wanted = running.spec.target_revision
    known = await read_target(context, read.stack.metadata.name, wanted) if wanted else None
    return (known or read.target).as_it_runs


async def _due_installation(
    context: Context, read: StackReading, node: NodeFacts, goal: Target, catalogue: Catalogue
) -> Due | None:
    image = catalogue.required_image(node, goal)
    if image is None or not node.ready or node.name in read.occupied:
        return None
    if node.claimed_by and await _still_upgrade(context, node):
        return None
    source = custom_objects.present_state(node, None, None)
    source = msgspec.structs.replace(source, kubelet_binary=goal.kubelet_binary, resource_name=goal.resource_name)
    return _due_attempt(context, read, node, UpgradeReason.INSTALL, source, (goal, image))


async def _due_repair(
    context: Context, read: StackReading, node: NodeFacts, goal: Target, catalogue: Catalogue
) -> Due | None:
    """The repair of a node to its revision, with the image for its new kernel.

    Without that image the driver is removed, so that nothing crash-loops, and the node waits for the image; meanwhile
    it may get the approved target of its pool, if that has an image.
    """
    revision = node.removed_driver.revision if node.removed_driver is not None else node.revision
    had = await read_target(context, read.stack.metadata.name, revision) if revision else None
    had = had.as_it_runs if had is not None else goal
    image = catalogue.required_image(node, had)
    if image is None and node.removed_driver is None:
        await driver_removal.remove_driver(context, read, node)
        return None
    if image is None:
        return await _due_installation(context, read, node, goal, catalogue)
    source = custom_objects.present_state(node, had, catalogue.image_of(node))
    return _due_attempt(context, read, node, UpgradeReason.REPAIR, source, (had, image))


def _due_attempt(
    context: Context,
    read: StackReading,
    node: NodeFacts,
    reason: UpgradeReason,
    source: NodeState,
    goal: tuple[Target, ImageFacts],
) -> Due | None:
    state = custom_objects.wanted_state(*goal)
    before = [
        Attempt(number=upgrade.spec.attempt, ended_at=_ended_at(upgrade) if is_final(upgrade.status.phase) else None)
        for upgrade in read.upgrades_of_node.get(node.uid, ())
        if upgrade.metadata.name == _attempt_name(node, reason, state, upgrade.spec.attempt)
    ]
    most = ADOPTION_ATTEMPTS if unplanned_upgrades.is_adoption(node) else None
    attempt = unplanned_upgrades.next_attempt(before, context.clock.now(), most=most)
    if attempt is None:
        return None
    ordered = custom_objects.Order(
        name=_attempt_name(node, reason, state, attempt),
        node=node,
        stack=read.stack.metadata.name,
        group=custom_objects.lone_group(node.name),
        reason=reason,
        source=source,
        target=state,
        limits=read.stack.spec.limits,
        stop_units=read.stack.spec.host.stop,
        attempt=attempt,
        takes_over=node.claimed_by,
    )
    return Due(order=ordered, target=goal[0], image=goal[1])


def _attempt_name(node: NodeFacts, reason: UpgradeReason, state: NodeState, attempt: int) -> str:
    # The name includes the boot: a node may need the same repair again (kernel A, B, A), and without a pause. That of a
    # take-over includes the consent, so that the attempts begin anew with the next one.
    identity = (reason.value, node.uid, node.boot_id, state.revision, state.driver_key, node.claimed_by, str(attempt))
    consent = (node.adopted_at,) if unplanned_upgrades.is_adoption(node) else ()
    return custom_objects.upgrade_name(node.name, *identity, *consent)


def failed_adoptions(read: StackReading, goal: Target) -> dict[str, NodeUpgrade]:
    """The failed upgrade after which the take-over of a node waits for a user, by name of the node."""
    adoptions = (node for node in read.snapshot.nodes if unplanned_upgrades.is_adoption(node))
    failed = {node.name: _failed_adoption(read.upgrades_of_node.get(node.uid, ()), node, goal) for node in adoptions}
    return {name: upgrade for name, upgrade in failed.items() if upgrade is not None}


def _failed_adoption(upgrades: Iterable[NodeUpgrade], node: NodeFacts, goal: Target) -> NodeUpgrade | None:
    last = latest_ended_upgrade(upgrades)
    if last is None or last.status.phase is not NodePhase.FAILED:
        return None
    target, attempt = last.spec.target, last.spec.attempt
    same = last.metadata.name == _attempt_name(node, last.spec.reason, target, attempt)
    return last if same and target.revision == goal.revision and attempt >= ADOPTION_ATTEMPTS else None


async def _still_upgrade(context: Context, node: NodeFacts) -> bool:
    """Whether a pod of the deleted upgrade's Job still runs on the node; the installation waits for it."""
    pods = await context.cluster.list(PODS, fields=f"spec.nodeName={node.name}")
    mine = (pod for pod in pods if is_own_pod(pod, context.stack.namespace))
    return any(pod.metadata.labels[names.LABEL_COMPONENT] == UPGRADE and pod.status.phase not in ENDED for pod in mine)
