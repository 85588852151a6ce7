"""`prepare`: checks that the node has everything that the upgrade requires."""

from collections.abc import Sequence

from upgrader.core.node_protocol.orders import OrderResult, PrepareOrder
from upgrader.node.commands.host_kubelet import host_kubelet
from upgrader.node.commands.order import run_order
from upgrader.node.host.host import Host
from upgrader.node.upgrade.prepare import prepare_node


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("prepare", arguments, PrepareOrder, _prepare_node)


def _prepare_node(order: PrepareOrder) -> OrderResult:
    host = Host()
    return prepare_node(order, host=host, kubelet=host_kubelet(host, order.kubelet or order.settings))
