"""Features of a node, read from its files: kernel, distribution, PCI devices, and the current boot."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from upgrader.core.node_protocol.node_features import (
    LONGEST,
    MOST_KERNELS,
    FeatureReport,
    is_counted_device,
    kernel_order,
)
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError

MODULES = "/lib/modules"
POLL_SECONDS = 60.0
"""Seconds between two reads of the installed kernels. Nothing waits for a change of them."""

_LINE = re.compile(r"(\w+)=(.+)", re.ASCII)
_HEX = re.compile(r"0x([0-9a-f]{4})(?:[0-9a-f]{2})?")

T = TypeVar("T")


def read_features(host: Host, *, system: Path = Path("/sys"), uptime: Path = Path("/proc/uptime")) -> FeatureReport:
    """Read the features. `system` and `uptime` are those of the container, which are those of the machine.

    os-release is parsed as in node-feature-discovery: quotes are removed at both ends, escapes are kept.

    Raises:
        OrderFailedError: a file cannot be read or has invalid contents; the message names it.
    """
    release = _read_or_fail(lambda: _os_release(host), "/etc/os-release")
    return FeatureReport(
        boot_id=_read_or_fail(
            lambda: _read_line(host.root / "proc/sys/kernel/random/boot_id"), "/proc/sys/kernel/random/boot_id"
        ),
        uptime=_read_or_fail(lambda: float(_read_line(uptime).split()[0]), str(uptime)),
        kernel=_read_or_fail(lambda: _require_text(host.kernel()), "/proc/sys/kernel/osrelease"),
        os_id=release.get("ID", "")[:LONGEST],
        os_version=release.get("VERSION_ID", "")[:LONGEST],
        kernels=_read_or_fail(lambda: installed_kernels(host), MODULES),
        pci=tuple(
            sorted(
                filter(is_counted_device, _read_or_fail(lambda: _pci_devices(system), str(system / "bus/pci/devices")))
            )
        ),
    )


def installed_kernels(host: Host) -> tuple[str, ...]:
    """Kernels whose modules are installed and indexed, the newest first."""
    folder = host.path(MODULES)
    if not folder.is_dir():
        return ()
    releases = (
        release.name
        for release in folder.iterdir()
        if (release / "modules.dep").is_file() and len(release.name) <= LONGEST
    )
    return tuple(sorted(releases, key=kernel_order, reverse=True)[:MOST_KERNELS])


def wait_for_changed_features(
    host: Host,
    sleep: Callable[[float], None],
    *,
    system: Path = Path("/sys"),
    uptime: Path = Path("/proc/uptime"),
) -> FeatureReport:
    """Wait until a kernel is installed or removed, then read the features.

    Raises:
        OrderFailedError: the features cannot be read.
    """
    before = installed_kernels(host)
    while installed_kernels(host) == before:
        sleep(POLL_SECONDS)
    return read_features(host, system=system, uptime=uptime)


def _read_or_fail(read: Callable[[], T], name: str) -> T:
    try:
        return read()
    except (OSError, ValueError, IndexError) as error:
        raise OrderFailedError(Reason.MISSING, f"{name} of the node cannot be read: {error}") from error


def _os_release(host: Host) -> dict[str, str]:
    text = host.path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    matches = (_LINE.match(line) for line in text.splitlines())
    return {match[1]: match[2].strip("\"'") for match in matches if match is not None}


def _pci_devices(system: Path) -> set[str]:
    """Class and vendor of the PCI devices, each pair once; a machine without the bus has none."""
    if not (system / "bus").is_dir():
        raise FileNotFoundError(f"{system} is not a sysfs")
    folder = system / "bus/pci/devices"
    return (
        {identifier for device in folder.iterdir() if (identifier := _pci_device(device))} if folder.exists() else set()
    )


def _pci_device(device: Path) -> str:
    """Class and vendor of a device; empty if it was removed in the meantime."""
    try:
        kind, vendor = (_read_line(device / name) for name in ("class", "vendor"))
    except FileNotFoundError:
        return ""
    return f"{_hex_digits(kind)}_{_hex_digits(vendor)}"


def _hex_digits(text: str) -> str:
    """Four hexadecimal digits, without the programming interface at the end of a class."""
    match = _HEX.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a class or vendor of a PCI device")
    return match[1]


def _read_line(path: Path) -> str:
    return _require_text(path.read_text(encoding="utf-8").strip())


def _require_text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text
