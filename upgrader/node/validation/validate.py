"""Validation in a pod that requests GPUs: driver, plugin and devices work together.

The devices of the `sim` vendor are files, and the sums are computed on the CPU; the result states that.
"""

import array
import os
from collections.abc import Mapping
from pathlib import Path

from upgrader.core.node_protocol.orders import OrderResult, Reason, ValidateOrder
from upgrader.node.driver.loaded_driver import check_loaded, read_loaded_driver
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.devices import VENDOR, VISIBLE, device_contents, parse_visible, split_shared_name

VECTOR_LENGTH = 1 << 12
"""Numbers that are added for each device."""


def validate_devices(order: ValidateOrder, *, run: Path, devices: Path, environment: Mapping[str, str]) -> OrderResult:
    """Check the devices of this container.

    Args:
        order: the expected state.
        run: RUN_DIRECTORY of the node, mounted read-only.
        devices: folder of the device files, /dev.
        environment: environment of the container, in part from the device plugin.

    Raises:
        OrderFailedError: DRIVER_MISMATCH or DEVICE_FAILED.
    """
    check_loaded(read_loaded_driver(run, order.driver.vendor), order.driver, order.boot_id)
    identifiers = parse_visible(environment.get(VISIBLE, ""))
    visible = tuple(dict.fromkeys(split_shared_name(identifier)[0] for identifier in identifiers))
    if len(visible) != order.devices:
        names = ", ".join(identifiers) or "none"
        raise OrderFailedError(
            Reason.DEVICE_FAILED,
            f"{order.devices} device(s) are expected, {VISIBLE} contains {len(visible)}: {names}",
        )
    real = order.driver.vendor != VENDOR
    expected = {name: "" if real else device_contents(order.driver.version, name) for name in visible}
    if faults := [fault for name in visible if (fault := _device_fault(devices / name, expected[name]))]:
        raise OrderFailedError(Reason.DEVICE_FAILED, "; ".join(faults))
    simulated = "(real driver, simulated GPUs)" if real else "(simulated)"
    return OrderResult(
        reason=Reason.DONE,
        message=f"{order.driver.vendor} {order.driver.version} {simulated}: {len(visible)} device(s) open, "
        f"{VECTOR_LENGTH} numbers added for each on the CPU",
        facts={"driver": order.driver.version, "devices": str(len(visible)), "boot id": order.boot_id},
    )


def _device_fault(path: Path, expected: str) -> str:
    """The fault of a device, which stays open during the calculation; empty if there is none.

    A device of a real driver has no contents, and can be opened only if the driver is loaded.
    """
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    try:
        contents = os.read(handle, 4096).decode(errors="replace").strip() if expected else ""
        if contents != expected:
            return f"{path} contains {contents!r} instead of {expected!r}"
        element = _first_wrong_element()
        return f"the vector addition on {path} is wrong at element {element}" if element is not None else ""
    finally:
        os.close(handle)


def _first_wrong_element() -> int | None:
    """Index of the first wrong element of a vector addition; None if all are right."""
    left = array.array("d", range(VECTOR_LENGTH))
    right = array.array("d", (2.0 * i + 1.0 for i in range(VECTOR_LENGTH)))
    total = array.array("d", (a + b for a, b in zip(left, right, strict=True)))
    return next((i for i, value in enumerate(total) if value != 3.0 * i + 1.0), None)
