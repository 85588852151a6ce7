"""PCI devices of the node, from sysfs."""

import re
from pathlib import Path

from msgspec import Struct

from upgrader.node.host.text_files import read_line, read_optional

NVIDIA = "10de"
DISPLAYS = "03"
"""Begin of the classes of display controllers, of which GPUs without a display (3D controllers, 0302) are a part."""
BRIDGES = "0680"
"""Class "other bridge", which NVSwitches have."""

_WIDTHS = frozenset({"1", "2", "4", "8", "12", "16"})
_HEX = re.compile(r"0x([0-9a-f]{4})(?:[0-9a-f]{2})?")


class PciDevice(Struct, frozen=True, kw_only=True):
    """A PCI device.

    `kind` is its class without the programming interface and `vendor` the ID of its vendor, both as four hexadecimal
    digits; `alias` is the text by which the kernel's modules claim it (modules.alias), empty if the kernel has none.
    `driver` is the name of the driver that has it, empty without one. `virtual`: a virtual function of another device.
    `port_width` is the number of lanes of the port that it is connected to; 0 where the machine does not have or show
    the port, as in virtual machines.
    """

    address: str
    kind: str
    vendor: str
    alias: str = ""
    driver: str = ""
    virtual: bool = False
    port_width: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU of NVIDIA."""
        return self.vendor == NVIDIA and self.kind.startswith(DISPLAYS)


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
    driver = folder / "driver"
    try:
        kind, vendor = (read_line(folder / name) for name in ("class", "vendor"))
        driver_name = driver.readlink().name if driver.is_symlink() else ""
    except FileNotFoundError:
        return None
    alias = folder / "modalias"
    return PciDevice(
        address=folder.name,
        kind=_hex_digits(kind),
        vendor=_hex_digits(vendor),
        alias=alias.read_text(encoding="utf-8").strip() if alias.exists() else "",
        driver=driver_name,
        virtual=(folder / "physfn").is_symlink(),
        port_width=_read_port_width(folder),
    )


def _read_port_width(folder: Path) -> int:
    """The lanes of the port above a device. The port of an emulated machine has 32, which no real port has."""
    width = read_optional(folder.resolve().parent / "max_link_width")
    return int(width) if width in _WIDTHS else 0


def _hex_digits(text: str) -> str:
    """Four hexadecimal digits, without the programming interface at the end of a class."""
    match = _HEX.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a class or vendor of a PCI device")
    return match[1]
