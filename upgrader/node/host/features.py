"""What a node is, read from its files: kernel, distribution, PCI devices, and the boot on which it was read."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from upgrader.core.node_protocol.node_features import LONGEST, MOST_KERNELS, FeatureReport, counts, kernel_order
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError

MODULES = "/lib/modules"
EVERY_SECONDS = 60.0
"""Between two looks at the installed kernels: a listing of a folder, and nobody waits for it."""

_LINE = re.compile(r"(\w+)=(.+)", re.ASCII)
_HEX = re.compile(r"0x([0-9a-f]{4})(?:[0-9a-f]{2})?")

T = TypeVar("T")


def read_features(host: Host, *, system: Path = Path("/sys"), uptime: Path = Path("/proc/uptime")) -> FeatureReport:
    """A report of the node. `system` and `uptime` are those of any container: they show the machine's.

    os-release is read as node-feature-discovery does: quotes go at both ends, escapes inside stay.

    Raises:
        OrderFailedError: a file cannot be read, or says what it should not; the message names it.
    """
    release = _told(lambda: _os_release(host), "/etc/os-release")
    return FeatureReport(
        boot_id=_told(lambda: _line(host.root / "proc/sys/kernel/random/boot_id"), "/proc/sys/kernel/random/boot_id"),
        uptime=_told(lambda: float(_line(uptime).split()[0]), str(uptime)),
        kernel=_told(lambda: _some(host.kernel()), "/proc/sys/kernel/osrelease"),
        os_id=release.get("ID", "")[:LONGEST],
        os_version=release.get("VERSION_ID", "")[:LONGEST],
        kernels=_told(lambda: installed_kernels(host), MODULES),
        pci=tuple(sorted(filter(counts, _told(lambda: _devices(system), str(system / "bus/pci/devices"))))),
    )


def installed_kernels(host: Host) -> tuple[str, ...]:
    """Kernels whose modules are installed and indexed, the newest first; none where there is no such folder."""
    folder = host.path(MODULES)
    if not folder.is_dir():
        return ()
    found = (one.name for one in folder.iterdir() if (one / "modules.dep").is_file() and len(one.name) <= LONGEST)
    return tuple(sorted(found, key=kernel_order, reverse=True)[:MOST_KERNELS])


def changed_features(
    host: Host,
    sleep: Callable[[float], None],
    *,
    system: Path = Path("/sys"),
    uptime: Path = Path("/proc/uptime"),
) -> FeatureReport:
    """Rest until another kernel is installed, or taken away; then what the node is.

    Raises:
        OrderFailedError: what the node is cannot be read.
    """
    before = installed_kernels(host)
    while installed_kernels(host) == before:
        sleep(EVERY_SECONDS)
    return read_features(host, system=system, uptime=uptime)


def _told(read: Callable[[], T], name: str) -> T:
    try:
        return read()
    except (OSError, ValueError, IndexError) as error:
        raise OrderFailedError(Reason.MISSING, f"{name} of the node cannot be read: {error}") from error


def _os_release(host: Host) -> dict[str, str]:
    text = host.path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    found = (_LINE.match(line) for line in text.splitlines())
    return {one[1]: one[2].strip("\"'") for one in found if one is not None}


def _devices(system: Path) -> set[str]:
    """Class and vendor of each sort of PCI device; a machine without the bus has none."""
    if not (system / "bus").is_dir():
        raise FileNotFoundError(f"{system} is no sysfs")
    folder = system / "bus/pci/devices"
    return {one for device in folder.iterdir() if (one := _device(device))} if folder.exists() else set()


def _device(device: Path) -> str:
    """Empty where it was taken out meanwhile."""
    try:
        kind, vendor = (_line(device / name) for name in ("class", "vendor"))
    except FileNotFoundError:
        return ""
    return f"{_hexadecimal(kind)}_{_hexadecimal(vendor)}"


def _hexadecimal(text: str) -> str:
    """Four digits, without the programming interface that ends a class."""
    found = _HEX.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number of a PCI device")
    return found[1]


def _line(path: Path) -> str:
    return _some(path.read_text(encoding="utf-8").strip())


def _some(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text
