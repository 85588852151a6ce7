"""Checks that are repeated when the nodes of a started batch are opened, since the cluster may have changed."""

from collections.abc import Sequence

from upgrader.api.resources import NODES
from upgrader.api.v1alpha1 import CheckpointRequest, GroupStatus, NodeUpgrade
from upgrader.core.constraints.gang_blockers import gang_blockers, waited_for
from upgrader.core.constraints.node_blockers import gpus_missing
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.model.fleet import Gang
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading

OPENING = frozenset({NodePhase.PREPARED, NodePhase.TAINTING})
"""Phases of an upgrade in which all pods on its node are checked; afterwards its taint keeps other pods away."""


async def without_upgrade(context: Context, group: GroupStatus, upgrades: Sequence[NodeUpgrade]) -> str:
    """Which existing node of a group has no upgrade, as a sentence; empty: each has one, or is deleted.

    A gang whose nodes are upgraded in part would be restarted on two drivers.

    Raises:
        ClusterError: the node cannot be read.
    """
    with_upgrade = {upgrade.spec.node.name for upgrade in upgrades}
    for name in group.nodes:
        if name not in with_upgrade and await context.cluster.get(NODES, name) is not None:
            why = "its driver image is no longer Ready, or the node cannot be read"
            return f"Node {name} of the upgrade group has no upgrade ({why}); no part of a group is upgraded alone."
    return ""


def find_group_blocker(read: PlanReading, group: GroupStatus, requests: Sequence[CheckpointRequest]) -> str:
    """A change since the start of the batch that blocks the upgrade of a group; empty: none."""
    if read.snapshot is None or read.target is None:
        return ""
    here = [gang for gang in read.snapshot.gangs if gang.nodes & set(group.nodes)]
    for gang in here:
        if gang.replicated and gang.name in read.plan.spec.checkpoint.wait_for:
            return waited_for(gang)[1]
        if (newcomer := _find_newcomer(gang, group)) is not None:
            return newcomer
    if grown := _find_growth(read, group, here):
        return grown
    asked = {request.spec.gang for request in requests}
    nodes = [node for node in read.snapshot.nodes if node.name in group.nodes]
    with_upgrade = {upgrade.spec.node.name for upgrade in read.upgrades if upgrade.spec.group == group.name}
    catalogue = Catalogue(read.snapshot.images)
    for node in nodes:
        if node.name not in with_upgrade and catalogue.has_unknown_driver(node):
            return f"Image {node.driver_key} of node {node.name} is no longer Ready; the node is not upgraded."
    if asked >= set(group.gangs) and not any(node.gpus_missing for node in nodes):
        return ""  # spares looking at the whole pool
    world = read.world
    if world is None:
        return ""
    for node in nodes:
        if (unwell := gpus_missing(world, node)) is not None:
            return unwell[1]
    mine = (gang for gang in here if gang.name in group.gangs and gang.name not in asked)
    return next((message for gang in mine for _, message in gang_blockers(world, gang)), "")


def _find_growth(read: PlanReading, group: GroupStatus, gangs: Sequence[Gang]) -> str:
    """A gang that is larger than at the start of its batch: neither budget nor approval counts the new members."""
    mine = [gang for gang in gangs if gang.name in group.gangs and not gang.replicated]
    for gang in mine:
        share = group.shares.get(gang.name)
        if share is not None and gang.gpus > share.gpus:
            grown = f"{gang.name} has {gang.gpus} GPUs, and had {share.gpus} when the batch started"
            return f"{grown}; a later batch counts it again."
    elsewhere = frozenset[str]().union(*(gang.nodes for gang in mine)) - set(group.nodes)
    if not elsewhere or read.world is None:
        return ""  # spares looking at the whole pool
    drifted = {name for name, node_drift in read.world.drift.items() if node_drift.drifted}
    for gang in mine:
        for name in sorted(gang.nodes & elsewhere & drifted):
            where = f"{gang.name} also runs on node {name}, which is not in its upgrade group"
            return f"{where}; a later batch counts it again."
    return ""


def _find_newcomer(gang: Gang, group: GroupStatus) -> str | None:
    """A new gang without GPUs that a reboot would end; a gang with GPUs is handled when its node is closed."""
    if gang.gpus or gang.replicated or gang.name in group.gangs:
        return None
    return f"{gang.name} was created after the batch started; it has no GPUs, but the upgrade would end it."


def waited_pods(read: PlanReading, upgrades: Sequence[NodeUpgrade]) -> frozenset[str] | None:
    """Uids of pods that the plan waits for, while a group is opened; None if unknown."""
    names = read.plan.spec.checkpoint.wait_for
    if not names or not any(upgrade.status.phase in OPENING for upgrade in upgrades):
        return frozenset()
    if read.snapshot is None:
        return None
    return frozenset(
        member.uid for gang in read.snapshot.gangs if gang.replicated and gang.name in names for member in gang.members
    )
