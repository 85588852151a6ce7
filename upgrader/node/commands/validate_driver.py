"""`validate-driver`: the node's driver, its devices, and what the kubelet offers of them."""

from collections.abc import Sequence

import grpc

from upgrader.core.node_protocol.orders import OrderResult, Reason, ValidateDriverOrder
from upgrader.node.commands.order import answered
from upgrader.node.driver.driver_validation import Places, validate_driver
from upgrader.node.host.clock import SystemClock
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.pod_resources import SOCKET, PodResources


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command."""
    return answered("validate-driver", arguments, ValidateDriverOrder, _validate)


def _validate(order: ValidateDriverOrder) -> OrderResult:
    def offered() -> dict[str, str]:
        try:
            return PodResources(SOCKET, order.resource).offered()
        except grpc.RpcError as error:
            raise OrderFailedError(Reason.MISSING, f"the kubelet does not say what it offers: {error}") from error

    return validate_driver(order, places=Places(), offered=offered, programs=SystemPrograms(), clock=SystemClock())
