"""Nodes on which a plan's upgrade ends all pods, with GPUs or without, except those of DaemonSets and static pods.

A node is emptied if it is rebooted, if it gets other settings of the kubelet, or if it is rebooted in case its driver
cannot be unloaded: that is only known when its jobs are stopped.
"""

from collections.abc import Iterable, Sequence

from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.model.fleet import ImageFacts, NodeFacts, Target


def emptied_nodes(
    nodes: Sequence[NodeFacts], target: Target, images: Iterable[ImageFacts], *, reboots_after_failed_unload: bool
) -> frozenset[str]:
    """Names of the emptied nodes."""
    certain = frozenset(node.name for node in nodes if target.empties(node))
    return certain | perhaps_rebooted_nodes(nodes, target, images) if reboots_after_failed_unload else certain


def perhaps_rebooted_nodes(nodes: Iterable[NodeFacts], target: Target, images: Iterable[ImageFacts]) -> frozenset[str]:
    """Names of the nodes that are emptied only because they are rebooted in case their driver cannot be unloaded."""
    catalogue = Catalogue(images)
    return frozenset(
        node.name for node in nodes if not target.empties(node) and _replaces_driver(node, target, catalogue)
    )


def _replaces_driver(node: NodeFacts, target: Target, catalogue: Catalogue) -> bool:
    image = catalogue.for_upgrade(node, target)
    return image is not None and target.replaces_driver(node, image)
