"""Steps that a user forces (`upgrader force`), recorded in the NodeUpgrade with author and reason."""

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
from upgrader.reconcile.runtime.context import Context, with_fresh_pods
from upgrader.stack import manifests

log = structlog.get_logger()


def forced_steps(upgrade: NodeUpgrade) -> dict[NodePhase, str]:
    """Forced steps, each with author and reason; the latest entry of a step counts."""
    return {order.step: f"forced by {order.by}: {order.reason}" for order in upgrade.spec.force}


async def undeclared_pods(context: Context, upgrades: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Uids of pods that may be deleted by force: of gangs that declare nothing, or whose owner replaces them.

    Read only if draining is forced, from all objects that declare: pods, their owners, their namespaces. In doubt, no
    pod is given.
    """
    waiting = [
        upgrade
        for upgrade in upgrades
        if upgrade.status.phase is NodePhase.DRAINING and NodePhase.DRAINING in forced_steps(upgrade)
    ]
    uids: set[str] = set()
    for upgrade in waiting:
        stack = await context.cluster.get(GPU_STACKS, upgrade.spec.stack)
        target = await read_target(context, upgrade.spec.stack, upgrade.spec.target.revision)
        if stack is None or target is None:
            continue
        plan = await context.cluster.get(UPGRADE_PLANS, upgrade.spec.plan) if upgrade.spec.plan else None
        method = plan.spec.checkpoint.method or "" if plan is not None else ""  # its jobs may have a default method
        seen = await cluster_snapshot.read_snapshot(
            with_fresh_pods(context),
            stack,
            target,
            former=await former_resources(context, upgrade.spec.stack, target.resource_name),
            method=method,
            reboots=manifests.ends_all_pods(upgrade),
        )
        gangs = seen.gangs if seen is not None else ()
        free = [gang for gang in gangs if upgrade.spec.node.name in gang.nodes and not declares_method(gang)]
        uids |= {member.uid for gang in free for member in gang.members}
    return frozenset(uids)


def declares_method(gang: Gang) -> bool:
    """Whether a gang declares a checkpoint method, usable or not: such a gang is never ended by force (law 1)."""
    return not gang.replicated and bool(gang.method or gang.undeclared_because)


async def release_nodes(context: Context, upgrades: Iterable[NodeUpgrade]) -> None:
    """Remove taint and claim of nodes whose failed upgrade a user forced (`upgrader force NODE --step Failed`).

    The stack then installs the driver on them again.
    """
    for upgrade in upgrades:
        why = forced_steps(upgrade).get(NodePhase.FAILED)
        if why is None or upgrade.status.phase is not NodePhase.FAILED or not _holds_node(context, upgrade):
            continue
        node = await context.cluster.get(NODES, upgrade.spec.node.name)
        if node is None or node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) != upgrade.metadata.uid:
            continue
        context.leadership.check()
        try:
            await context.cluster.merge(NODES, node.metadata, node_patches.release_node(node, upgrade.metadata.uid, ""))
        except (ConflictError, NotFoundError) as error:
            log.info("conflict, requeued", node=node.metadata.name, because=error.brief)
            continue
        await context.cluster.event(
            ObjectMeta(name=node.metadata.name, uid=node.metadata.uid),
            "Node",
            "v1",
            reason="UpgradeForced",
            message=f"released as it is after its upgrade failed, {why}",
        )


def _holds_node(context: Context, upgrade: NodeUpgrade) -> bool:
    node = (context.nodes.snapshot() or {}).get(upgrade.spec.node.name)
    return node is not None and node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) == upgrade.metadata.uid
