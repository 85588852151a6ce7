"""What a cluster needs of driver images: the kernels of its nodes, and what its objects name."""

import asyncio

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, NODE_UPGRADES, NODES
from upgrader.core.image_garbage import Uses
from upgrader.core.node_features import same_kernel
from upgrader.core.phases import ends
from upgrader.reconcile.ports import Cluster


async def read_uses(cluster: Cluster) -> Uses:
    """All of one cluster.

    Kernels come from nodeInfo, and from the label of node feature discovery where that says another one.
    A visit that has not ended, and every DriverImage, names a kernel that is to run; what a visit names ran before.

    Raises:
        ClusterError: a list was refused or did not come; then nothing is known, and nothing may be deleted.
    """
    nodes, visits, images = await asyncio.gather(
        cluster.list(NODES), cluster.list(NODE_UPGRADES), cluster.list(DRIVER_IMAGES)
    )
    running = {one.status.node_info.kernel_version for one in nodes}
    running |= {label for one in nodes if (label := _other_kernel(one))}
    pending = {one.spec.target.kernel for one in visits if not ends(one.status.phase)}
    pending |= {one.spec.kernel for one in images}
    previous = {one.spec.source.kernel for one in visits} | {one.spec.target.kernel for one in visits}
    named = {one.spec.source.driver_image for one in visits} | {one.spec.target.driver_image for one in visits}
    named |= {one.status.digest or "" for one in images} | {one.spec.image or "" for one in images}
    return Uses(
        running=frozenset(running - {""}),
        pending=frozenset(pending - {""}),
        previous=frozenset(previous - {""}),
        named=frozenset(digest for one in named if (digest := one.rpartition("@")[2]).startswith("sha256:")),
    )


def _other_kernel(node: Node) -> str:
    """The kernel label, escaped as it is, where it does not stand for the kernel that the kubelet says; else empty."""
    label = node.metadata.labels.get(names.LABEL_KERNEL_NFD, "")
    return "" if same_kernel(label, node.status.node_info.kernel_version) else label
