"""`python -m upgrader.node prepare|visit|validate|device-plugin|node-labels`: what our pods on a node run.

Orders come from the environment and answers go to the termination message, see docs/node-contract.md.
"""

import argparse
import errno
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from upgrader.core.orders import (
    NODE_VARIABLE,
    ORDER_VARIABLE,
    RUN_DIRECTORY,
    TERMINATION_LOG,
    KubeletTarget,
    OrderResult,
    PrepareOrder,
    Reason,
    ValidateOrder,
    VisitOrder,
)
from upgrader.node.clock import SystemClock
from upgrader.node.features import read_features
from upgrader.node.host import Host
from upgrader.node.kubelet import HostKubelet
from upgrader.node.outcome import EXIT_CODES, LONGEST_MESSAGE, OrderFailedError, leave_message, leave_text
from upgrader.node.prepare import prepare
from upgrader.node.programs import SystemPrograms
from upgrader.node.registered import is_registered
from upgrader.node.validate import validate
from upgrader.node.visit import Visit

_ORDERS: dict[str, type[PrepareOrder] | type[VisitOrder] | type[ValidateOrder]] = {
    "prepare": PrepareOrder,
    "visit": VisitOrder,
    "validate": ValidateOrder,
}


def carry_out(command: str, text: str) -> OrderResult:
    """The result of an order, also where it failed in one of the ways that have a reason."""
    try:
        order = msgspec.json.decode(text, type=_ORDERS[command])
    except msgspec.DecodeError as error:
        return OrderResult(reason=Reason.BAD_ORDER, message=f"{ORDER_VARIABLE} is no order to {command}: {error}")
    try:
        return _act(order)
    except OrderFailedError as error:
        return OrderResult(reason=error.reason, message=str(error), facts=error.facts)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return OrderResult(reason=Reason.DISK_FULL, message=f"the node's disk is full: {error}")


def _act(order: PrepareOrder | VisitOrder | ValidateOrder) -> OrderResult:
    host = Host()
    match order:
        case PrepareOrder():
            return prepare(order, host=host, kubelet=_kubelet(host, order.kubelet))
        case VisitOrder():
            kubelet = _kubelet(host, order.kubelet)
            return Visit(order, host=host, kubelet=kubelet, programs=SystemPrograms(), clock=SystemClock()).run()
        case ValidateOrder():
            return validate(order, run=Path(RUN_DIRECTORY), devices=Path("/dev"), environment=os.environ)


def _kubelet(host: Host, target: KubeletTarget | None) -> HostKubelet:
    node = os.environ.get(NODE_VARIABLE, "")
    if target is not None and not node:
        raise OrderFailedError(Reason.BAD_ORDER, f"{NODE_VARIABLE} is not set: the pod passes spec.nodeName in it")
    return HostKubelet(host, binary=target.binary if target else "", node=node, programs=SystemPrograms())


def _device_plugin(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="upgrader.node device-plugin", description="the simulated device plugin")
    parser.add_argument("--resource", default="nvidia.com/gpu")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    parser.add_argument("--state", type=Path, default=Path("/tmp/upgrader-registered.json"))  # noqa: S108 - own container
    parser.add_argument(
        "--ready", action="store_true", help="exit 0 if registered with the kubelet that runs now, else 1"
    )
    options = parser.parse_args(arguments)
    if options.ready:
        return 0 if is_registered(options.folder, options.state) else 1
    # gRPC takes a quarter of a second to load, and only the plugin speaks it.
    from upgrader.node.device_plugin import Offer  # noqa: PLC0415
    from upgrader.node.registration import Registration  # noqa: PLC0415

    offer = Offer(resource=options.resource, count=options.count, run=options.run)
    registration = Registration(offer, folder=options.folder, state=options.state, clock=SystemClock())
    while True:
        registration.serve_one_kubelet()


def _node_labels(arguments: list[str]) -> int:
    """Leave what the node is as the termination message, or a sentence that says what keeps that from being known."""
    if arguments:
        raise SystemExit(f"`node-labels` takes no arguments, not {' '.join(arguments)!r}")
    try:
        text, code = msgspec.json.encode(read_features(Host())), 0
    except OrderFailedError as error:
        text, code = str(error).encode(), EXIT_CODES[error.reason]
    sys.stdout.write(text.decode() + "\n")
    leave_text(text[:LONGEST_MESSAGE], Path(TERMINATION_LOG))
    return code


def _order(command: str) -> Callable[[list[str]], int]:
    def run(arguments: list[str]) -> int:
        if arguments:
            raise SystemExit(f"`{command}` takes its order from {ORDER_VARIABLE}, not {' '.join(arguments)!r}")
        result = carry_out(command, os.environ.get(ORDER_VARIABLE, ""))
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        leave_message(result, Path(TERMINATION_LOG))
        return EXIT_CODES[result.reason]

    return run


def main(arguments: list[str]) -> int:
    """Exit code of the command."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    commands = {name: _order(name) for name in _ORDERS} | {"device-plugin": _device_plugin, "node-labels": _node_labels}
    if not arguments or arguments[0] not in commands:
        sys.stderr.write(f"usage: python -m upgrader.node {'|'.join(commands)}\n")
        return EXIT_CODES[Reason.BAD_ORDER]
    return commands[arguments[0]](arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
