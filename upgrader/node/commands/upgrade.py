"""`upgrade`: unloads the driver, replaces the kubelet, reboots."""

from collections.abc import Sequence

from upgrader.core.node_protocol.orders import OrderResult, UpgradeOrder
from upgrader.node.commands.host_kubelet import host_kubelet
from upgrader.node.commands.order import run_order
from upgrader.node.host.clock import MonotonicClock
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.upgrade.upgrade import UpgradeRun


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("upgrade", arguments, UpgradeOrder, _upgrade_node)


def _upgrade_node(order: UpgradeOrder) -> OrderResult:
    host = Host()
    kubelet = host_kubelet(host, order.kubelet or order.settings)
    return UpgradeRun(order, host=host, kubelet=kubelet, programs=SystemPrograms(), clock=MonotonicClock()).run()
