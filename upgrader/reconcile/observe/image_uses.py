"""What a cluster needs of driver images: the kernels of its nodes, and what its objects name."""

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, NODE_UPGRADES, NODES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import DriverImage, NodeUpgrade
from upgrader.core.driver_image.image_garbage import Uses
from upgrader.core.driver_image.missing_images import read_removed_driver
from upgrader.core.model.fleet import Target
from upgrader.core.model.phases import ends
from upgrader.core.node_protocol.node_features import same_kernel
from upgrader.reconcile.facts.node_facts import pending_kernel
from upgrader.reconcile.observe.revisions import read_target
from upgrader.reconcile.ports import Cluster
from upgrader.reconcile.runtime.context import Context


class Needs(Struct, frozen=True, kw_only=True):
    """Kernels and image keys that a node has or may be given: a DriverImage for one of them is taken from nobody."""

    kernels: frozenset[str]
    keys: frozenset[str]

    def has(self, image: DriverImage) -> bool:
        """Whether something may still ask for an image."""
        return image.spec.kernel in self.kernels or bool(image.status.key and image.status.key in self.keys)


async def read_needs(context: Context, nodes: Iterable[Node], targets: Iterable[Target]) -> Needs:
    """Of all nodes, all upgrades that are open or still hold their node, and the targets of plans that are open.

    `targets`: what stacks ask for.

    Raises:
        ClusterError: a list was refused or did not come; then nothing may be taken away.
    """
    upgrades, plans = await asyncio.gather(context.cluster.list(NODE_UPGRADES), context.cluster.list(UPGRADE_PLANS))
    leading = [
        await read_target(context, one.spec.stack, one.spec.target_revision)
        for one in plans
        if not ends(one.status.phase)
    ]
    return needs_of(nodes, upgrades, [*targets, *(one for one in leading if one is not None)])


def needs_of(nodes: Iterable[Node], upgrades: Iterable[NodeUpgrade], targets: Iterable[Target]) -> Needs:
    """The same from what was read."""
    kernels, keys, claims = {one.kernel for one in targets}, set[str](), set[str]()
    for node in nodes:
        marks = node.metadata.annotations
        kernels |= {node.status.node_info.kernel_version, pending_kernel(node)}
        claims.add(marks.get(names.ANNOTATION_CLAIMED_BY, ""))
        removed_driver = read_removed_driver(marks.get(names.ANNOTATION_REMOVED_DRIVER))
        keys |= {
            node.metadata.labels.get(names.LABEL_DRIVER, ""),
            removed_driver.driver if removed_driver is not None else "",
        }
    for upgrade in upgrades:
        if not ends(upgrade.status.phase) or upgrade.metadata.uid in claims:
            spec = upgrade.spec
            kernels |= {spec.source.kernel, spec.target.kernel}
            keys |= {spec.source.driver_key, spec.target.driver_key}
    return Needs(kernels=frozenset(kernels - {""}), keys=frozenset(keys - {""}))


async def read_uses(cluster: Cluster) -> Uses:
    """All of one cluster.

    Kernels come from nodeInfo, and from the label of node feature discovery where that says another one.
    An upgrade that has not ended, every DriverImage, and a node that has a newer one installed name a kernel that is to
    run; what a node upgrade names ran before.

    Raises:
        ClusterError: a list was refused or did not come; then nothing is known, and nothing may be deleted.
    """
    nodes, upgrades, images = await asyncio.gather(
        cluster.list(NODES), cluster.list(NODE_UPGRADES), cluster.list(DRIVER_IMAGES)
    )
    running = {one.status.node_info.kernel_version for one in nodes}
    running |= {label for one in nodes if (label := _other_kernel(one))}
    pending = {one.spec.target.kernel for one in upgrades if not ends(one.status.phase)}
    pending |= {one.spec.kernel for one in images} | {pending_kernel(one) for one in nodes}
    previous = {one.spec.source.kernel for one in upgrades} | {one.spec.target.kernel for one in upgrades}
    named = {one.spec.source.driver_image for one in upgrades} | {one.spec.target.driver_image for one in upgrades}
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
