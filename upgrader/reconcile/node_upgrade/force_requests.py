"""What a person orders for an upgrade that waits (`upgrader force`): written into the NodeUpgrade with who and why."""

from collections.abc import Iterable

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import GPU_STACKS, NODES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.errors import ConflictError, NotFoundError
from upgrader.core.model.fleet import Gang
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.revisions import former_resources, read_target
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context, anew
from upgrader.stack import manifests

log = structlog.get_logger()


def orders(upgrade: NodeUpgrade) -> dict[NodePhase, str]:
    """Steps that are forced, each with who ordered it and why; the latest order of a step counts."""
    return {one.step: f"by order of {one.by}: {one.reason}" for one in upgrade.spec.force}


async def undeclared(context: Context, upgrades: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Uids of pods that may go by an order: of gangs that declare nothing, or whose owner replaces them.

    Read only where draining is forced, from everything that declares: pods, their owners, their namespaces. Doubt gives
    none.
    """
    waiting = [one for one in upgrades if one.status.phase is NodePhase.DRAINING and NodePhase.DRAINING in orders(one)]
    found: set[str] = set()
    for one in waiting:
        stack = await context.cluster.get(GPU_STACKS, one.spec.stack)
        target = await read_target(context, one.spec.stack, one.spec.target.revision)
        if stack is None or target is None:
            continue
        plan = await context.cluster.get(UPGRADE_PLANS, one.spec.plan) if one.spec.plan else None
        method = plan.spec.checkpoint.method or "" if plan is not None else ""  # its jobs may be asked by default
        seen = await cluster_snapshot.read_snapshot(
            anew(context),
            stack,
            target,
            former=await former_resources(context, one.spec.stack, target.resource_name),
            method=method,
            reboots=manifests.empties(one),
        )
        gangs = seen.gangs if seen is not None else ()
        free = [gang for gang in gangs if one.spec.node.name in gang.nodes and not declares(gang)]
        found |= {member.uid for gang in free for member in gang.members}
    return frozenset(found)


def declares(gang: Gang) -> bool:
    """Whether a gang says how it is asked, also where that cannot be used: no order ends such a one (law 1)."""
    return not gang.replicated and bool(gang.method or gang.undeclared_because)


async def give_back(context: Context, upgrades: Iterable[NodeUpgrade]) -> None:
    """Nodes whose failed upgrade kept them, and which a person wants back: they are installed anew then."""
    for one in upgrades:
        why = orders(one).get(NodePhase.FAILED)
        if why is None or one.status.phase is not NodePhase.FAILED or not _kept(context, one):
            continue
        node = await context.cluster.get(NODES, one.spec.node.name)
        if node is None or node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) != one.metadata.uid:
            continue
        context.leadership.check()
        try:
            await context.cluster.merge(NODES, node.metadata, node_patches.give_back(node, one.metadata.uid, ""))
        except (ConflictError, NotFoundError) as error:
            log.info("conflict, requeued", node=node.metadata.name, because=error.brief)
            continue
        await context.cluster.event(
            ObjectMeta(name=node.metadata.name, uid=node.metadata.uid),
            "Node",
            "v1",
            reason="UpgradeForced",
            message=f"given back as it is after its upgrade failed, {why}",
        )


def _kept(context: Context, upgrade: NodeUpgrade) -> bool:
    node = (context.nodes.snapshot() or {}).get(upgrade.spec.node.name)
    return node is not None and node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) == upgrade.metadata.uid
