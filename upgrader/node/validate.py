"""Validation, from inside a pod that asked for GPUs: driver, plugin and devices work together.

With the `sim` vendor devices are files and the sums are made on the CPU; the result says so.
"""

import array
import os
from collections.abc import Mapping
from pathlib import Path

from upgrader.core.orders import OrderResult, Reason, ValidateOrder
from upgrader.node.devices import VISIBLE, names_in, statement
from upgrader.node.driver import Loaded, loaded
from upgrader.node.outcome import OrderFailedError

ELEMENTS = 1 << 18


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
    present = loaded(run, order.driver.vendor)
    _check_driver(order, present)
    visible = names_in(environment.get(VISIBLE, ""))
    if len(visible) != order.devices:
        shown = ", ".join(visible) or "none"
        raise OrderFailedError(
            Reason.DEVICE_FAILED,
            f"{order.devices} device(s) should be visible, {VISIBLE} names {len(visible)}: {shown}",
        )
    for name in visible:
        _check_device(devices / name, statement(order.driver.version, name))
    _add_vectors()
    return OrderResult(
        reason=Reason.DONE,
        message=f"{order.driver.vendor} {order.driver.version} (simulated): {len(visible)} device(s) open, "
        f"{ELEMENTS} numbers added on the CPU",
        facts={"driver": order.driver.version, "devices": str(len(visible)), "boot id": order.boot_id},
    )


def _check_driver(order: ValidateOrder, present: Loaded | None) -> None:
    wanted = f"{order.driver.vendor} {order.driver.version}"
    if present is None:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"no driver of {order.driver.vendor} is loaded, wanted is {wanted}"
        )
    if present.version != order.driver.version:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"{present.vendor} {present.version} is loaded, wanted is {wanted}"
        )
    if present.boot_id != order.boot_id:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"{wanted} was loaded on boot {present.boot_id}, the node runs boot {order.boot_id}: its record is stale",
        )


def _check_device(path: Path, expected: str) -> None:
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{path} cannot be opened: {error.strerror}") from error
    try:
        said = os.read(handle, 4096).decode(errors="replace").strip()
    finally:
        os.close(handle)
    if said != expected:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{path} says {said!r}, expected was {expected!r}")


def _add_vectors() -> None:
    """A real vector addition, checked element by element against a closed form."""
    left = array.array("d", range(ELEMENTS))
    right = array.array("d", (2.0 * i + 1.0 for i in range(ELEMENTS)))
    total = array.array("d", (a + b for a, b in zip(left, right, strict=True)))
    wrong = next((i for i, value in enumerate(total) if value != 3.0 * i + 1.0), None)
    if wrong is not None:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"the vector addition is wrong at element {wrong}: {total[wrong]}")
