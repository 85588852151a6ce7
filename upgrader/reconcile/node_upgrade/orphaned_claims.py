"""Claims of deleted or released upgrades on nodes: checked by a fresh read, and removed."""

from collections.abc import Iterable

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Node, ObjectMeta
from upgrader.api.resources import NODES
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import is_final
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()


async def still_orphaned(context: Context, upgrades: Iterable[NodeUpgrade], node: NodeFacts) -> Node | None:
    """The node from a fresh read if its claim is unchanged (the cache may be stale) and no other upgrade is open."""
    if any(upgrade.spec.node.uid == node.uid and not is_final(upgrade.status.phase) for upgrade in upgrades):
        return None
    fresh = await context.cluster.get(NODES, node.name)
    if fresh is None or fresh.metadata.uid != node.uid:
        return None
    return fresh if fresh.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) == node.claimed_by else None


async def release_claim(context: Context, node: Node) -> None:
    """Remove taint and claim of an ended or deleted node upgrade that changed nothing else."""
    upgrade = node.metadata.annotations[names.ANNOTATION_CLAIMED_BY]
    context.leadership.check()
    await context.cluster.merge(NODES, node.metadata, node_patches.release_node(node, upgrade, ""))
    log.info("claim removed", node=node.metadata.name, upgrade=upgrade)
    await context.cluster.event(
        ObjectMeta(name=node.metadata.name, uid=node.metadata.uid),
        "Node",
        "v1",
        reason="UpgradeDeleted",
        message=f"the NodeUpgrade with UID {upgrade} has ended or was deleted, and changed nothing; its taint and "
        "claim are removed",
    )
