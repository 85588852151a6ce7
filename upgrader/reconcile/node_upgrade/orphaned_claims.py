"""Claims on nodes whose upgrade is no more, or gave its node back: found, looked at once more, and taken away."""

from collections.abc import Iterable

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Node, ObjectMeta
from upgrader.api.resources import NODES
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import ends
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()


async def still_orphaned(context: Context, upgrades: Iterable[NodeUpgrade], node: NodeFacts) -> Node | None:
    """The node as it is now, where the claim still stands there (the cache may be behind) and nobody else comes."""
    if any(one.spec.node.uid == node.uid and not ends(one.status.phase) for one in upgrades):
        return None
    fresh = await context.cluster.get(NODES, node.name)
    if fresh is None or fresh.metadata.uid != node.uid:
        return None
    return fresh if fresh.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) == node.claimed_by else None


async def unmark(context: Context, node: Node) -> None:
    """Take away taint and claim of a node upgrade that is over or no more, and has changed nothing else."""
    upgrade = node.metadata.annotations[names.ANNOTATION_CLAIMED_BY]
    context.leadership.check()
    await context.cluster.merge(NODES, node.metadata, node_patches.give_back(node, upgrade, ""))
    log.info("marks taken away", node=node.metadata.name, upgrade=upgrade)
    await context.cluster.event(
        ObjectMeta(name=node.metadata.name, uid=node.metadata.uid),
        "Node",
        "v1",
        reason="UpgradeDeleted",
        message=f"NodeUpgrade {upgrade} is over or no more, and changed nothing; its taint and claim are taken away",
    )
