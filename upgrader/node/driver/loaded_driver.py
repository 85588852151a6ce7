"""The record of the driver that is loaded on a node.

A driver image writes a record, `loaded.json`, and its own `unload` to RUN_DIRECTORY/<vendor>/ (driver_unload.py). Both
are on tmpfs, so a reboot removes them together with the driver.
"""

import re
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.orders import NodeDriver, Reason
from upgrader.node.host.task_result import OrderFailedError

_VENDOR = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class LoadedDriver(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of a loaded driver; `simulated` means that it has no kernel module.

    `not_loaded`: optional modules that are not loaded, with the reason of each. `services`: those of the image.
    """

    vendor: str
    version: str
    kernel: str
    boot_id: str
    devices: int
    simulated: bool = False
    not_loaded: dict[str, str] = {}
    services: tuple[str, ...] = ()


def read_loaded_driver(run: Path, vendor: str) -> LoadedDriver | None:
    """The driver of a vendor that is loaded on this boot; None if no driver is loaded.

    Raises:
        OrderFailedError: the record cannot be read.
    """
    if not _VENDOR.fullmatch(vendor):
        raise OrderFailedError(Reason.BAD_ORDER, f"{vendor!r} is not a valid name of a vendor")
    record = run / vendor / "loaded.json"
    try:
        return msgspec.json.decode(record.read_bytes(), type=LoadedDriver)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"{record} cannot be decoded: {error}") from error


def check_loaded(present: LoadedDriver | None, expected: NodeDriver, boot_id: str) -> LoadedDriver:
    """The loaded driver, if it is the expected one and was loaded on this boot.

    Args:
        present: the record of the loaded driver.
        expected: the expected driver. Without a version: any version of the vendor.
        boot_id: ID of the current boot. Empty means unknown.

    Raises:
        OrderFailedError: DRIVER_MISMATCH.
    """
    name = f"{expected.vendor} {expected.version}".strip()
    if present is None:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"no driver of {expected.vendor} is loaded, expected is {name}")
    if expected.version not in {"", present.version}:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"{present.vendor} {present.version} is loaded, expected is {name}"
        )
    if boot_id not in {"", present.boot_id}:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"{name} was loaded on boot {present.boot_id}, the current boot is {boot_id}: the record is stale",
        )
    return present
