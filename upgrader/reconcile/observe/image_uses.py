"""Driver images that a cluster needs: for the kernels of its nodes, and by references of its objects."""

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
from upgrader.core.model.phases import is_final
from upgrader.core.node_protocol.node_features import same_kernel
from upgrader.reconcile.facts.node_facts import pending_kernel
from upgrader.reconcile.observe.revisions import read_target
from upgrader.reconcile.ports import Cluster
from upgrader.reconcile.runtime.context import Context


class Needs(Struct, frozen=True, kw_only=True):
    """Kernels and image keys that nodes have or may get: a DriverImage for one of them is not deleted."""

    kernels: frozenset[str]
    keys: frozenset[str]

    def has(self, image: DriverImage) -> bool:
        """Whether an image may still be needed."""
        return image.spec.kernel in self.kernels or bool(image.status.key and image.status.key in self.keys)


async def read_needs(context: Context, nodes: Iterable[Node], targets: Iterable[Target]) -> Needs:
    """Needs of all nodes, of upgrades that are open or hold their node, and of targets of open plans.

    `targets`: targets of stacks.

    Raises:
        ClusterError: a list failed; then nothing may be deleted.
    """
    upgrades, plans = await asyncio.gather(context.cluster.list(NODE_UPGRADES), context.cluster.list(UPGRADE_PLANS))
    leading = [
        await read_target(context, plan.spec.stack, plan.spec.target_revision)
        for plan in plans
        if not is_final(plan.status.phase)
    ]
    return needs_of(nodes, upgrades, [*targets, *(target for target in leading if target is not None)])


def needs_of(nodes: Iterable[Node], upgrades: Iterable[NodeUpgrade], targets: Iterable[Target]) -> Needs:
    """The needs of objects that were read."""
    kernels, keys, claims = {target.kernel for target in targets}, set[str](), set[str]()
    for node in nodes:
        annotations = node.metadata.annotations
        kernels |= {node.status.node_info.kernel_version, pending_kernel(node)}
        claims.add(annotations.get(names.ANNOTATION_CLAIMED_BY, ""))
        removed_driver = read_removed_driver(annotations.get(names.ANNOTATION_REMOVED_DRIVER))
        keys |= {
            node.metadata.labels.get(names.LABEL_DRIVER, ""),
            removed_driver.driver if removed_driver is not None else "",
        }
    for upgrade in upgrades:
        if not is_final(upgrade.status.phase) or upgrade.metadata.uid in claims:
            spec = upgrade.spec
            kernels |= {spec.source.kernel, spec.target.kernel}
            keys |= {spec.source.driver_key, spec.target.driver_key}
    return Needs(kernels=frozenset(kernels - {""}), keys=frozenset(keys - {""}))


async def read_uses(cluster: Cluster) -> Uses:
    """All uses of one cluster.

    Kernels come from nodeInfo, and from the label of node feature discovery if that differs. Pending kernels are those
    of open upgrades, DriverImages, and next boots of nodes; previous kernels are those of all node upgrades.

    Raises:
        ClusterError: a list failed; then nothing may be deleted.
    """
    nodes, upgrades, images = await asyncio.gather(
        cluster.list(NODES), cluster.list(NODE_UPGRADES), cluster.list(DRIVER_IMAGES)
    )
    running = {node.status.node_info.kernel_version for node in nodes}
    running |= {label for node in nodes if (label := _other_kernel(node))}
    pending = {upgrade.spec.target.kernel for upgrade in upgrades if not is_final(upgrade.status.phase)}
    pending |= {image.spec.kernel for image in images} | {pending_kernel(node) for node in nodes}
    previous = {upgrade.spec.source.kernel for upgrade in upgrades} | {
        upgrade.spec.target.kernel for upgrade in upgrades
    }
    named = {upgrade.spec.source.driver_image for upgrade in upgrades} | {
        upgrade.spec.target.driver_image for upgrade in upgrades
    }
    named |= {image.status.digest or "" for image in images} | {image.spec.image or "" for image in images}
    return Uses(
        running=frozenset(running - {""}),
        pending=frozenset(pending - {""}),
        previous=frozenset(previous - {""}),
        named=frozenset(
            digest for reference in named if (digest := reference.rpartition("@")[2]).startswith("sha256:")
        ),
    )


def _other_kernel(node: Node) -> str:
    """The escaped kernel label if it differs from the kernel that the kubelet reports; else empty."""
    label = node.metadata.labels.get(names.LABEL_KERNEL_NFD, "")
    return "" if same_kernel(label, node.status.node_info.kernel_version) else label
