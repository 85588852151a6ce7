"""`prepare`: is everything for the upgrade on the node?"""

from collections.abc import Sequence

from upgrader.core.node_protocol.orders import OrderResult, PrepareOrder
from upgrader.node.commands.host_kubelet import host_kubelet
from upgrader.node.commands.order import answered
from upgrader.node.host.host import Host
from upgrader.node.upgrade.prepare import prepare


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command."""
    return answered("prepare", arguments, PrepareOrder, _prepare)


def _prepare(order: PrepareOrder) -> OrderResult:
    host = Host()
    return prepare(order, host=host, kubelet=host_kubelet(host, order.kubelet or order.settings))
