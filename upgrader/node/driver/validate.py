"""Validation, from inside a pod that asked for GPUs: driver, plugin and devices work together.

With the `sim` vendor devices are files and the sums are made on the CPU; the result says so.
"""

import array
import os
from collections.abc import Mapping
from pathlib import Path

from upgrader.core.node_protocol.orders import OrderResult, Reason, ValidateOrder
from upgrader.node.driver.devices import VENDOR, VISIBLE, names_in, shared_name, statement
from upgrader.node.driver.loaded_driver import check_loaded, loaded
from upgrader.node.host.task_result import OrderFailedError

ELEMENTS = 1 << 12
"""For each device."""


def validate(order: ValidateOrder, *, run: Path, devices: Path, environment: Mapping[str, str]) -> OrderResult:
    """Look at everything that was handed into this container.

    Args:
        order: what should be there.
        run: the node's RUN_DIRECTORY, mounted read-only.
        devices: where device files are, /dev.
        environment: as the device plugin set it.

    Raises:
        OrderFailedError: DRIVER_MISMATCH or DEVICE_FAILED, with what was seen.
    """
    check_loaded(loaded(run, order.driver.vendor), order.driver, order.boot_id)
    handed_in = names_in(environment.get(VISIBLE, ""))
    visible = tuple(dict.fromkeys(shared_name(one)[0] for one in handed_in))
    if len(visible) != order.devices:
        shown = ", ".join(handed_in) or "none"
        raise OrderFailedError(
            Reason.DEVICE_FAILED,
            f"{order.devices} device(s) should be visible, {VISIBLE} names {len(visible)}: {shown}",
        )
    real = order.driver.vendor != VENDOR
    expected = {name: "" if real else statement(order.driver.version, name) for name in visible}
    if faults := [fault for name in visible if (fault := _fault(devices / name, expected[name]))]:
        raise OrderFailedError(Reason.DEVICE_FAILED, "; ".join(faults))
    simulated = "(real driver, simulated GPUs)" if real else "(simulated)"
    return OrderResult(
        reason=Reason.DONE,
        message=f"{order.driver.vendor} {order.driver.version} {simulated}: {len(visible)} device(s) open, "
        f"{ELEMENTS} numbers added for each on the CPU",
        facts={"driver": order.driver.version, "devices": str(len(visible)), "boot id": order.boot_id},
    )


def _fault(path: Path, expected: str) -> str:
    """What is wrong with a device, which is held while it is worked on; empty when nothing is.

    A real driver's device says nothing, and can be opened only where the driver is.
    """
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    try:
        said = os.read(handle, 4096).decode(errors="replace").strip() if expected else ""
        if said != expected:
            return f"{path} says {said!r}, expected was {expected!r}"
        wrong = _first_wrong()
        return f"the vector addition on {path} is wrong at element {wrong}" if wrong is not None else ""
    finally:
        os.close(handle)


def _first_wrong() -> int | None:
    """Where a real vector addition is not what a closed form says; None where it is right everywhere."""
    left = array.array("d", range(ELEMENTS))
    right = array.array("d", (2.0 * i + 1.0 for i in range(ELEMENTS)))
    total = array.array("d", (a + b for a, b in zip(left, right, strict=True)))
    return next((i for i, value in enumerate(total) if value != 3.0 * i + 1.0), None)
