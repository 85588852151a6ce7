"""Driver validation on the node: the expected driver, all of its devices, and the devices that the kubelet advertises.

It only reads, so it may run beside jobs. A failure names the check and all devices with a fault, not only the first.
See docs/concepts/validation.md.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import OrderResult, Reason, ValidateDriverOrder
from upgrader.node.driver import modules
from upgrader.node.driver.loaded_driver import LoadedDriver, check_loaded, read_loaded_driver
from upgrader.node.driver.module_parameters import find_differences
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation import devices, gpu_inspection
from upgrader.node.validation.listed_devices import inspect_listed_devices

T = TypeVar("T")
KUBELET_SECONDS = 15.0
"""Time for a kubelet to advertise a device that its plugin has just reported."""


class ValidationPaths(Struct, frozen=True, kw_only=True):
    """Paths of the node in this container."""

    run: Path = Path(RUN_DIRECTORY)
    drivers: Path = Path(STATE_DIRECTORY) / "drivers"
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")


class DeviceFindings(Struct, frozen=True, kw_only=True):
    """The fault of each device by its ID in the device plugin, empty for a healthy device; and facts for the result."""

    devices: dict[str, str]
    facts: dict[str, str] = {}


def validate_driver(
    order: ValidateDriverOrder,
    *,
    places: ValidationPaths,
    list_allocatable: Callable[[], Mapping[str, str]],
    programs: ProgramRunner,
    clock: NodeClock,
) -> OrderResult:
    """Run all checks, the cheapest first.

    Args:
        order: the expected state.
        places: paths of the node.
        list_allocatable: returns the extended resource of each device that the kubelet advertises, by ID.
        programs: runs the tools of the driver.
        clock: clock of the wait for the kubelet.

    Raises:
        OrderFailedError: DRIVER_MISMATCH or DEVICE_FAILED; `facts["check"]` names the check.
    """
    present = _run_check(
        "driver", lambda: check_loaded(read_loaded_driver(places.run, order.driver.vendor), order.driver, order.boot_id)
    )
    absent: dict[str, str] = {}
    if not present.simulated:
        absent = _run_check("module", lambda: modules.check_modules(places.run, places.sys, present))
    if wrong := find_differences(order.parameters, proc=places.proc, system=places.sys):
        raise _failed_check("parameters", Reason.DRIVER_MISMATCH, "; ".join(wrong))
    inspected = _run_check("devices", lambda: _inspect_devices(places, present, programs, clock))
    faulty = {name: trouble for name, trouble in inspected.devices.items() if trouble}
    if faulty:
        faults = "; ".join(f"{name}: {trouble}" for name, trouble in faulty.items())
        raise _failed_check(
            "devices", Reason.DEVICE_FAILED, f"{len(faulty)} of {len(inspected.devices)} with faults: {faults}"
        )
    allocatable: dict[str, str] = {}

    def check_allocatable() -> str:
        try:
            devices_now = list_allocatable()
        except OrderFailedError as error:
            return str(error)  # the kubelet may be starting
        allocatable.clear()
        allocatable.update(devices_now)
        return _offer_fault(allocatable, frozenset(inspected.devices), order)

    if fault := poll_until_no_fault(check_allocatable, clock=clock, seconds=KUBELET_SECONDS):
        unhealthy = [
            f"{name} is marked unhealthy (XID {xid})" for name, xid in devices.unhealthy_devices(places.run).items()
        ]
        raise _failed_check("offered", Reason.DEVICE_FAILED, "; ".join([fault, *unhealthy]))
    simulated = " (simulated)" if present.simulated else ""
    remarks = [order.besides] * bool(order.besides) + [f"without {name} ({absent[name]})" for name in sorted(absent)]
    return OrderResult(
        reason=Reason.DONE,
        message=f"{present.vendor} {present.version}{simulated}: {len(inspected.devices)} healthy device(s), "
        f"{'; '.join([f'{_device_counts(allocatable, order.resource)} advertised', *remarks])}",
        facts={
            "driver": present.version,
            "devices": str(len(inspected.devices)),
            **({"modules not loaded": ", ".join(sorted(absent))} if absent else {}),
            **inspected.facts,
        },
    )


def _run_check(name: str, act: Callable[[], T]) -> T:
    """Run a check; its failures contain its name."""
    try:
        return act()
    except OrderFailedError as error:
        raise _failed_check(name, error.reason, str(error)) from error


def _failed_check(check: str, reason: Reason, message: str) -> OrderFailedError:
    return OrderFailedError(reason, f"check {check}: {message}", facts={"check": check})


def _inspect_devices(
    places: ValidationPaths, present: LoadedDriver, programs: ProgramRunner, clock: NodeClock
) -> DeviceFindings:
    match present.vendor:
        case devices.VENDOR:
            return DeviceFindings(devices=devices.inspect_devices(places.run, present.version, present.devices))
        case gpu_inspection.VENDOR:
            library = places.drivers / gpu_inspection.VENDOR / "current"
            paths = gpu_inspection.NodePaths(
                run=places.run, proc=places.proc, sys=places.sys, dev=places.dev, library=library
            )
            faults, facts = gpu_inspection.inspect_gpus(paths, present, programs, clock)
            return DeviceFindings(devices=faults, facts=facts)
        case _:
            return DeviceFindings(devices=inspect_listed_devices(places.run, present.vendor, programs))


def _device_counts(allocatable: Mapping[str, str], resource: str) -> str:
    """The number of devices of each resource; partitions of GPUs have resources of their own."""
    counts = Counter(allocatable.values()) or {resource: 0}
    return ", ".join(f"{counts[name]} x {name}" for name in sorted(counts))


def _offer_fault(allocatable: Mapping[str, str], names: frozenset[str], order: ValidateDriverOrder) -> str:
    """Why the advertised devices are not the expected ones; empty if they are."""
    # Partitions have IDs of their own, which do not contain the device.
    has_partitions = any(identifier.startswith("MIG-") for identifier in allocatable)
    missing = (
        sorted(names - {devices.split_shared_name(identifier)[0] for identifier in allocatable})
        if not has_partitions
        else []
    )
    if missing:
        return f"the kubelet does not advertise {', '.join(missing)}: unhealthy or unknown to the device plugin"
    expected = max(order.expected, len(names))
    if len(allocatable) < expected:
        return f"the kubelet advertises {_device_counts(allocatable, order.resource)}, expected are {expected}"
    return ""
