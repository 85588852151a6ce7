"""`validate-driver`: checks the driver of the node, its devices, and the devices that the kubelet advertises."""

from collections.abc import Sequence

import grpc

from upgrader.core.node_protocol.orders import OrderResult, Reason, ValidateDriverOrder
from upgrader.node.commands.order import run_order
from upgrader.node.host.clock import MonotonicClock
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.pod_resources import SOCKET, PodResources
from upgrader.node.validation.driver_validation import ValidationPaths, validate_driver


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("validate-driver", arguments, ValidateDriverOrder, _validate_node)


def _validate_node(order: ValidateDriverOrder) -> OrderResult:
    def list_allocatable() -> dict[str, str]:
        try:
            return PodResources(SOCKET, order.resource).list_allocatable()
        except grpc.RpcError as error:
            raise OrderFailedError(Reason.MISSING, f"the kubelet does not list its devices: {error}") from error

    return validate_driver(
        order,
        places=ValidationPaths(),
        list_allocatable=list_allocatable,
        programs=SystemPrograms(),
        clock=MonotonicClock(),
    )
