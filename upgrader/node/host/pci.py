"""PCI devices of the node, from sysfs."""

import re
from pathlib import Path

from msgspec import Struct

from upgrader.node.host.text_files import read_line

NVIDIA = "10de"
DISPLAYS = "03"
"""Begin of the classes of display controllers, of which GPUs without a display (3D controllers, 0302) are a part."""
BRIDGES = "0680"
"""Class "other bridge", which NVSwitches have."""

_HEX = re.compile(r"0x([0-9a-f]{4})(?:[0-9a-f]{2})?")


class PciDevice(Struct, frozen=True, kw_only=True):
    """A PCI device.

    `kind` is its class without the programming interface and `vendor` the ID of its vendor, both as four hexadecimal
    digits; `alias` is the text by which the kernel's modules claim it (modules.alias), empty if the kernel has none.
    """

    address: str
    kind: str
    vendor: str
    alias: str = ""


def read_pci_devices(system: Path) -> tuple[PciDevice, ...]:
    """The PCI devices, by address; none on a machine without this bus.

    Args:
        system: /sys of the machine.

    Raises:
        OSError: `system` is not a sysfs.
        ValueError: a class or a vendor has another format.
    """
    if not (system / "bus").is_dir():
        raise FileNotFoundError(f"{system} is not a sysfs")
    folder = system / "bus/pci/devices"
    if not folder.exists():
        return ()
    found = (_read_device(device) for device in sorted(folder.iterdir()))
    return tuple(device for device in found if device is not None)


def _read_device(folder: Path) -> PciDevice | None:
    """A device; None if it was removed in the meantime."""
    try:
        kind, vendor = (read_line(folder / name) for name in ("class", "vendor"))
    except FileNotFoundError:
        return None
    alias = folder / "modalias"
    return PciDevice(
        address=folder.name,
        kind=_hex_digits(kind),
        vendor=_hex_digits(vendor),
        alias=alias.read_text(encoding="utf-8").strip() if alias.exists() else "",
    )


def _hex_digits(text: str) -> str:
    """Four hexadecimal digits, without the programming interface at the end of a class."""
    match = _HEX.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a class or vendor of a PCI device")
    return match[1]
