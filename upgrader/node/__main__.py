"""`python -m upgrader.node COMMAND`: what our pods on a node run.

Orders come from the environment and answers go to the termination message, see docs/node-contract.md.
"""

import argparse
import errno
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from upgrader.core.gpu_features import GpuReport
from upgrader.core.orders import (
    NODE_VARIABLE,
    ORDER_VARIABLE,
    POD_VARIABLE,
    RUN_DIRECTORY,
    TERMINATION_LOG,
    KubeletSettings,
    KubeletTarget,
    OrderResult,
    PrepareOrder,
    Reason,
    ValidateDriverOrder,
    ValidateOrder,
    VisitOrder,
)
from upgrader.node import devices
from upgrader.node.clock import SystemClock
from upgrader.node.driver_validation import Places, validate_driver
from upgrader.node.features import changed_features, read_features
from upgrader.node.gpu_features import changed_gpus, leave_done, read_gpus
from upgrader.node.host import Host
from upgrader.node.kubelet import HostKubelet
from upgrader.node.outcome import EXIT_CODES, LONGEST_MESSAGE, OrderFailedError, leave_message, leave_text
from upgrader.node.prepare import prepare
from upgrader.node.programs import SystemPrograms
from upgrader.node.runtime import RuntimeHook, serve
from upgrader.node.validate import validate
from upgrader.node.visit import Visit
from upgrader.node.waiting import wait_for

CHECK = "exit 0 where all other options are known, and do nothing"
DEVICES = 8
"""Simulated devices of a node."""

Order = PrepareOrder | VisitOrder | ValidateDriverOrder | ValidateOrder
_ORDERS: dict[str, type[Order]] = {
    "prepare": PrepareOrder,
    "visit": VisitOrder,
    "validate-driver": ValidateDriverOrder,
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


def _act(order: Order) -> OrderResult:
    host = Host()
    match order:
        case PrepareOrder():
            return prepare(order, host=host, kubelet=_kubelet(host, order.kubelet or order.settings))
        case VisitOrder():
            kubelet = _kubelet(host, order.kubelet or order.settings)
            return Visit(order, host=host, kubelet=kubelet, programs=SystemPrograms(), clock=SystemClock()).run()
        case ValidateDriverOrder():
            return _validate_driver(order)
        case ValidateOrder():
            return validate(order, run=Path(RUN_DIRECTORY), devices=Path("/dev"), environment=os.environ)


def _kubelet(host: Host, target: KubeletTarget | KubeletSettings | None) -> HostKubelet:
    node = os.environ.get(NODE_VARIABLE, "")
    if target is not None and not node:
        raise OrderFailedError(Reason.BAD_ORDER, f"{NODE_VARIABLE} is not set: the pod passes spec.nodeName in it")
    return HostKubelet(host, binary=target.binary if target else "", node=node, programs=SystemPrograms())


def _validate_driver(order: ValidateDriverOrder) -> OrderResult:
    # gRPC takes a quarter of a second to load, and few commands need it.
    import grpc  # noqa: PLC0415

    from upgrader.node.pod_resources import SOCKET, PodResources  # noqa: PLC0415

    def offered() -> frozenset[str]:
        try:
            return PodResources(SOCKET, order.resource).offered()
        except grpc.RpcError as error:
            raise OrderFailedError(Reason.MISSING, f"the kubelet does not say what it offers: {error}") from error

    return validate_driver(order, places=Places(), offered=offered, programs=SystemPrograms(), clock=SystemClock())


def _device_plugin(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="upgrader.node device-plugin", description="the simulated device plugin")
    parser.add_argument("--resource", default="nvidia.com/gpu")
    parser.add_argument("--driver", default=devices.VENDOR, help="vendor of the loaded driver")
    parser.add_argument("--slices", type=int, default=1, help="as how many devices each one is offered")
    parser.add_argument("--cdi", action="store_true", help="hand in CDI devices where the runtime hook says so")
    parser.add_argument("--count", type=int, default=DEVICES)
    parser.add_argument("--folder", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    parser.add_argument("--port", type=int, default=8080, help="where GET /ready says whether it is registered")
    parser.add_argument("--check", action="store_true", help=CHECK)
    options = parser.parse_args(arguments)
    if options.check:
        return 0
    # gRPC takes a quarter of a second to load, and only the plugin speaks it.
    from upgrader.node.device_plugin import Offer  # noqa: PLC0415
    from upgrader.node.registered import answer_probes  # noqa: PLC0415
    from upgrader.node.registration import Registration  # noqa: PLC0415

    offer = Offer(
        resource=options.resource,
        count=options.count,
        run=options.run,
        driver=options.driver,
        cdi=options.cdi,
        slices=options.slices,
    )
    registration = Registration(offer, folder=options.folder, clock=SystemClock())
    answer_probes(registration.ready, options.port)
    while True:
        registration.serve_one_kubelet()


def _exporter(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="upgrader.node exporter", description="metrics of the simulated devices")
    parser.add_argument("--resource", default="nvidia.com/gpu")
    parser.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    parser.add_argument("--driver", default="sim", help="vendor of the loaded driver")
    parser.add_argument("--count", type=int, default=8, help="devices, where that driver is a real one")
    parser.add_argument("--socket", type=Path, default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    parser.add_argument("--port", type=int, default=9400)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two looks at the node's processes")
    options = parser.parse_args(arguments)
    # gRPC and the metrics' library take their time to load, and few commands need them.
    from upgrader.node import devices, exporter  # noqa: PLC0415
    from upgrader.node.device_load import DeviceLoad  # noqa: PLC0415
    from upgrader.node.pod_resources import PodResources  # noqa: PLC0415

    load = DeviceLoad(devices.folder(options.run) if options.driver == devices.VENDOR else None)
    sim = exporter.SimDevices(
        run=options.run,
        node=os.environ.get(NODE_VARIABLE, ""),
        driver=options.driver,
        count=options.count,
        load=load,
        pods=PodResources(options.socket, options.resource),
    )
    exporter.serve(sim, load, port=options.port, every=options.every, clock=SystemClock())
    return 0


def _node_labels(arguments: list[str]) -> int:
    """Leave what the node is as the termination message, or a sentence that says what keeps that from being known.

    With `--watch` only when another kernel was installed: the kubelet carries the message and starts it again.
    """
    if arguments not in ([], ["--watch"]):
        raise SystemExit(f"`node-labels` takes nothing but --watch, not {' '.join(arguments)!r}")
    return _leave_report(lambda: changed_features(Host(), time.sleep) if arguments else read_features(Host()))


def _leave_report(read: Callable[[], object]) -> int:
    try:
        text, code = msgspec.json.encode(read()), 0
    except OrderFailedError as error:
        text, code = str(error).encode(), EXIT_CODES[error.reason]
    sys.stdout.write(text.decode() + "\n")
    leave_text(text[:LONGEST_MESSAGE], Path(TERMINATION_LOG))
    return code


def _gpu_features(arguments: list[str]) -> int:
    """Leave what is known of the GPUs as the termination message, or a sentence that says what keeps it from that.

    With `--watch` only when another driver is loaded: the kubelet carries the message and starts it again.
    """
    parser = argparse.ArgumentParser(prog="upgrader.node gpu-features", description="labels of the simulated devices")
    parser.add_argument("--driver", default=devices.VENDOR, help="vendor of the loaded driver")
    parser.add_argument("--count", type=int, default=DEVICES, help="devices, where that driver is a real one")
    parser.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    parser.add_argument("--watch", action="store_true", help="end when another driver is loaded")
    options = parser.parse_args(arguments)

    def read() -> GpuReport:
        return read_gpus(options.run, driver=options.driver, count=options.count)

    def read_and_leave() -> GpuReport:
        report = changed_gpus(read, time.sleep) if options.watch else read()
        leave_done(options.run, report)
        return report

    return _leave_report(read_and_leave)


def _runtime(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="upgrader.node runtime", description="the simulated vendor's runtime hook")
    parser.add_argument("--driver", default=devices.VENDOR, help="vendor of the loaded driver")
    parser.add_argument("--count", type=int, default=DEVICES)
    parser.add_argument("--folder", type=Path, default=Path("/var/run/cdi"))
    parser.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    parser.add_argument("--proc", type=Path, default=Path("/proc"))
    parser.add_argument(
        "--ready", action="store_true", help="exit 0 if this pod's hook has done its work on this boot, else 1"
    )
    parser.add_argument("--check", action="store_true", help=CHECK)
    options = parser.parse_args(arguments)
    if options.check:
        return 0
    hook = RuntimeHook(
        folder=options.folder,
        run=options.run,
        proc=options.proc,
        programs=SystemPrograms(),
        pod=os.environ.get(POD_VARIABLE, ""),
    )
    if options.ready:
        return 0 if hook.done(options.driver) is not None else 1
    serve(hook, options.count, options.driver, SystemClock())
    return 0


def _wait(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="upgrader.node wait", description="wait for an operand of this node")
    parser.add_argument("--for", dest="operand", required=True, help="its name, for the log")
    parser.add_argument("--file", type=Path, action="append", required=True, help="there once it has done its work")
    options = parser.parse_args(arguments)
    wait_for(options.operand, options.file, SystemClock())
    return 0


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
    commands = {name: _order(name) for name in _ORDERS}
    commands |= {
        "device-plugin": _device_plugin,
        "exporter": _exporter,
        "gpu-features": _gpu_features,
        "node-labels": _node_labels,
        "runtime": _runtime,
        "wait": _wait,
    }
    if not arguments or arguments[0] not in commands:
        sys.stderr.write(f"usage: python -m upgrader.node {'|'.join(commands)}\n")
        return EXIT_CODES[Reason.BAD_ORDER]
    return commands[arguments[0]](arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
