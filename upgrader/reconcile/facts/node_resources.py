"""The allocatable resources of a node, compared with those that its upgrade has recorded."""

from upgrader.api.kubernetes import Node
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.node_upgrade.node_resources import NodeResources, describe_lost_resources, select_resources


def read_resources(upgrade: NodeUpgrade, node: Node | None) -> NodeResources:
    """The resources of a node whose upgrade reboots it into another kernel; those of other nodes are not compared."""
    reboot, source, target = upgrade.spec.kernel_reboot, upgrade.spec.source, upgrade.spec.target
    if reboot is None or node is None:
        return NodeResources()
    changed = frozenset({"cpu"}) if source.kubelet_settings != target.kubelet_settings else frozenset[str]()
    before, now = upgrade.status.found.allocatable, node.status.allocatable
    return NodeResources(
        allocatable=select_resources(now, (source.resource_name, target.resource_name)),
        lost="" if upgrade.status.reverting else describe_lost_resources(before, now, changed),
        settle_seconds=reboot.settle_seconds,
        reports=reboot.on_loss == "Report",
    )
