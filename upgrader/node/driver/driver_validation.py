"""Driver validation, on the node itself: the driver that should run, every one of its devices, and what is offered.

All is looked at and nothing is changed, so it may run beside jobs. A failure names the check and each device that is
not well, not only the first. See docs/concepts/validation.md.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import OrderResult, Reason, ValidateDriverOrder
from upgrader.node.driver import devices, modules, nvidia
from upgrader.node.driver.loaded_driver import Loaded, check_loaded, loaded
from upgrader.node.host.clock import Clock, until
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import OrderFailedError

T = TypeVar("T")
OFFER_SECONDS = 15.0
"""A kubelet that has just been told of a device may take a moment until it offers it."""


class Places(Struct, frozen=True, kw_only=True):
    """Where things of the node are in this container."""

    run: Path = Path(RUN_DIRECTORY)
    drivers: Path = Path(STATE_DIRECTORY) / "drivers"
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")


class Inspected(Struct, frozen=True, kw_only=True):
    """What a vendor sees: what is wrong with each device, empty where nothing is, by its id in the device plugin."""

    devices: dict[str, str]
    facts: dict[str, str] = {}


def validate_driver(
    order: ValidateDriverOrder,
    *,
    places: Places,
    offered: Callable[[], Mapping[str, str]],
    programs: Programs,
    clock: Clock,
) -> OrderResult:
    """Look at everything, the cheapest first.

    Args:
        order: what should be there.
        places: where to look.
        offered: devices that the kubelet offers now, by id, with the extended resource of each.
        programs: runs the driver's own tools.
        clock: for a kubelet that is not as far yet.

    Raises:
        OrderFailedError: DRIVER_MISMATCH or DEVICE_FAILED; `facts["check"]` names the check.
    """
    present = _check(
        "driver", lambda: check_loaded(loaded(places.run, order.driver.vendor), order.driver, order.boot_id)
    )
    if not present.simulated:
        _check("module", lambda: modules.check(places.run, places.sys, present))
    inspected = _check("devices", lambda: _inspect(places, present, programs))
    wrong = {name: trouble for name, trouble in inspected.devices.items() if trouble}
    if wrong:
        said = "; ".join(f"{name}: {trouble}" for name, trouble in wrong.items())
        raise _failed("devices", Reason.DEVICE_FAILED, f"{len(wrong)} of {len(inspected.devices)} not well: {said}")
    seen: dict[str, str] = {}

    def look() -> str:
        try:
            now = offered()
        except OrderFailedError as error:
            return str(error)  # it may just be starting
        seen.clear()
        seen.update(now)
        return _offer_fault(seen, frozenset(inspected.devices), order)

    if fault := until(look, clock=clock, seconds=OFFER_SECONDS):
        called = [f"{name} is called unhealthy (XID {xid})" for name, xid in devices.unhealthy(places.run).items()]
        raise _failed("offered", Reason.DEVICE_FAILED, "; ".join([fault, *called]))
    simulated = " (simulated)" if present.simulated else ""
    return OrderResult(
        reason=Reason.DONE,
        message=f"{present.vendor} {present.version}{simulated}: {len(inspected.devices)} device(s) well, "
        f"{_counted(seen, order.resource)} offered{f'; {order.besides}' if order.besides else ''}",
        facts={"driver": present.version, "devices": str(len(inspected.devices)), **inspected.facts},
    )


def _check(name: str, act: Callable[[], T]) -> T:
    """Run a check; what it finds wrong carries its name."""
    try:
        return act()
    except OrderFailedError as error:
        raise _failed(name, error.reason, str(error)) from error


def _failed(check: str, reason: Reason, message: str) -> OrderFailedError:
    return OrderFailedError(reason, f"check {check}: {message}", facts={"check": check})


def _inspect(places: Places, present: Loaded, programs: Programs) -> Inspected:
    match present.vendor:
        case devices.VENDOR:
            return Inspected(devices=devices.inspect(places.run, present.version, present.devices))
        case nvidia.VENDOR:
            found, facts = nvidia.inspect(
                nvidia.Node(proc=places.proc, dev=places.dev, library=places.drivers / nvidia.VENDOR / "current"),
                present,
                programs,
            )
            return Inspected(devices=found, facts=facts)
        case _:
            raise OrderFailedError(Reason.BAD_ORDER, f"no check is known of devices of vendor {present.vendor!r}")


def _counted(now: Mapping[str, str], resource: str) -> str:
    """How many of each resource are offered; partitions of GPUs have names of their own."""
    found = Counter(now.values()) or {resource: 0}
    return ", ".join(f"{found[name]} x {name}" for name in sorted(found))


def _offer_fault(now: Mapping[str, str], known: frozenset[str], order: ValidateDriverOrder) -> str:
    """What is wrong with what the kubelet offers; empty when nothing is."""
    # Parts of a device have ids of their own, from which the device cannot be told.
    parts = any(one.startswith("MIG-") for one in now)
    missing = sorted(known - {devices.shared_name(one)[0] for one in now}) if not parts else []
    if missing:
        return (
            f"the kubelet does not offer {', '.join(missing)}: the device plugin calls it unhealthy, or does not see it"
        )
    wanted = max(order.expected, len(known))
    if len(now) < wanted:
        return f"the kubelet offers {_counted(now, order.resource)}, {wanted} are expected"
    return ""
