"""`upgrade`: unload, swap, restart."""

from collections.abc import Sequence

from upgrader.core.node_protocol.orders import OrderResult, UpgradeOrder
from upgrader.node.commands.host_kubelet import host_kubelet
from upgrader.node.commands.order import answered
from upgrader.node.host.clock import SystemClock
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.upgrade.upgrade import Upgrade


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command."""
    return answered("upgrade", arguments, UpgradeOrder, _upgrade)


def _upgrade(order: UpgradeOrder) -> OrderResult:
    host = Host()
    kubelet = host_kubelet(host, order.kubelet or order.settings)
    return Upgrade(order, host=host, kubelet=kubelet, programs=SystemPrograms(), clock=SystemClock()).run()
