"""Taking the driver of a node away that came up with a kernel for which there is no image of it.

It loads nowhere there, so nothing is lost, and its pods would crash-loop for as long as that lasts. What it was is kept
on the Node in the same write; the repair that follows when there is an image takes that away again.
"""

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import NODES
from upgrader.core.errors import ConflictError
from upgrader.core.model.fleet import NodeFacts, RemovedDriver
from upgrader.core.model.phases import ends
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()


async def remove_driver(context: Context, read: StackReading, node: NodeFacts) -> None:
    """Switch driver and operands off, where the node still is as it was seen and nobody upgrades it."""
    if any(one.spec.node.uid == node.uid and not ends(one.status.phase) for one in read.upgrades):
        return
    fresh = await context.cluster.get(NODES, node.name)
    if fresh is None or fresh.metadata.uid != node.uid:
        return
    info, labels = fresh.status.node_info, fresh.metadata.labels
    same = (info.boot_id, info.kernel_version, labels.get(names.LABEL_DRIVER)) == (
        node.boot_id,
        node.kernel,
        node.driver_key,
    )
    if not same or names.ANNOTATION_CLAIMED_BY in fresh.metadata.annotations:
        return
    had = RemovedDriver(driver=node.driver_key, revision=node.revision, kernel=node.kernel)
    context.leadership.check()
    try:
        await context.cluster.merge(NODES, fresh.metadata, node_patches.remove_driver(had))
    except ConflictError as error:
        log.info("conflict, requeued", node=node.name, because=error.brief)
        return
    log.warning("driver taken away", node=node.name, kernel=node.kernel, image=node.driver_key)
    await context.cluster.event(
        ObjectMeta(name=node.name, uid=node.uid),
        "Node",
        "v1",
        reason="NoDriverImage",
        message=f"came up with kernel {node.kernel}, for which there is no image of its driver; it is repaired "
        "when there is one (see the stack's condition Installed)",
        warning=True,
    )
