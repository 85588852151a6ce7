"""The record of the driver that is loaded on a node.

A driver image that loads leaves under RUN_DIRECTORY/<vendor>/ a record `loaded.json` and its own `unload` (driver.py).
Both are on tmpfs, so that a reboot forgets them with the driver.
"""

import re
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.orders import Driver, Reason
from upgrader.node.host.task_result import OrderFailedError

_VENDOR = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class Loaded(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of a loaded driver; `simulated` where no kernel module stands behind it."""

    vendor: str
    version: str
    kernel: str
    boot_id: str
    devices: int
    simulated: bool = False


def loaded(run: Path, vendor: str) -> Loaded | None:
    """The driver of a vendor that is loaded on this boot; None where none is.

    Raises:
        OrderFailedError: the record cannot be read.
    """
    if not _VENDOR.fullmatch(vendor):
        raise OrderFailedError(Reason.BAD_ORDER, f"{vendor!r} is no vendor's name")
    record = run / vendor / "loaded.json"
    try:
        return msgspec.json.decode(record.read_bytes(), type=Loaded)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"{record} says nothing that can be read: {error}") from error


def check_loaded(present: Loaded | None, wanted: Driver, boot_id: str) -> Loaded:
    """The driver that is loaded, which is the wanted one and was loaded on this boot.

    Args:
        present: as its record says.
        wanted: without a version: whichever of this vendor.
        boot_id: of the boot that the node runs; empty: not known.

    Raises:
        OrderFailedError: DRIVER_MISMATCH.
    """
    name = f"{wanted.vendor} {wanted.version}".strip()
    if present is None:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"no driver of {wanted.vendor} is loaded, wanted is {name}")
    if wanted.version not in {"", present.version}:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"{present.vendor} {present.version} is loaded, wanted is {name}"
        )
    if boot_id not in {"", present.boot_id}:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"{name} was loaded on boot {present.boot_id}, the node runs boot {boot_id}: its record is stale",
        )
    return present
