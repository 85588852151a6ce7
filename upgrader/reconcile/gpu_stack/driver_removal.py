"""Removal of the driver from a node that booted a kernel without an image of that driver.

The driver cannot load there, and its pods would crash-loop. The same write records the removed driver on the Node;
the repair that follows when an image exists removes the record.
"""

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import NODES
from upgrader.core.errors import ConflictError
from upgrader.core.model.fleet import NodeFacts, RemovedDriver
from upgrader.core.model.phases import is_final
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()


async def remove_driver(context: Context, read: StackReading, node: NodeFacts) -> None:
    """Switch driver and operands off, if the node is unchanged and no upgrade holds it."""
    if any(upgrade.spec.node.uid == node.uid and not is_final(upgrade.status.phase) for upgrade in read.upgrades):
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
    log.warning("driver removed", node=node.name, kernel=node.kernel, image=node.driver_key)
    await context.cluster.event(
        ObjectMeta(name=node.name, uid=node.uid),
        "Node",
        "v1",
        reason="NoDriverImage",
        message=f"booted kernel {node.kernel}, for which its driver has no image; it is repaired when an image "
        "exists (see the stack's condition Installed)",
        warning=True,
    )
