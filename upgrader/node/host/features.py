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
from upgrader.node.host.pci import read_pci_devices
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.host.text_files import read_line, require_text

MODULES = "/lib/modules"
POLL_SECONDS = 60.0
"""Seconds between two reads of the installed kernels. Nothing waits for a change of them."""

_LINE = re.compile(r"(\w+)=(.+)", re.ASCII)

T = TypeVar("T")


def read_features(host: Host, *, system: Path = Path("/sys"), uptime: Path = Path("/proc/uptime")) -> FeatureReport:
    """Read the features. `system` and `uptime` are those of the container, which are those of the machine.

    os-release is parsed as in node-feature-discovery: quotes are removed at both ends, escapes are kept.

    Raises:
        OrderFailedError: a file cannot be read or has invalid contents; the message names it.
    """
    release = _read_or_fail(lambda: read_os_release(host), "/etc/os-release")
    return FeatureReport(
        boot_id=_read_or_fail(
            lambda: read_line(host.root / "proc/sys/kernel/random/boot_id"), "/proc/sys/kernel/random/boot_id"
        ),
        uptime=_read_or_fail(lambda: float(read_line(uptime).split()[0]), str(uptime)),
        kernel=_read_or_fail(lambda: require_text(host.kernel()), "/proc/sys/kernel/osrelease"),
        os_id=release.get("ID", "")[:LONGEST],
        os_version=release.get("VERSION_ID", "")[:LONGEST],
        kernels=_read_or_fail(lambda: installed_kernels(host), MODULES),
        pci=tuple(
            sorted(
                filter(is_counted_device, _read_or_fail(lambda: _pci_kinds(system), str(system / "bus/pci/devices")))
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


def read_os_release(host: Host) -> dict[str, str]:
    """Fields of /etc/os-release, without quotes.

    Raises:
        OSError: the file cannot be read.
    """
    text = host.path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    matches = (_LINE.match(line) for line in text.splitlines())
    return {match[1]: match[2].strip("\"'") for match in matches if match is not None}


def _pci_kinds(system: Path) -> set[str]:
    """Class and vendor of the PCI devices, each pair once; a machine without the bus has none."""
    return {f"{device.kind}_{device.vendor}" for device in read_pci_devices(system)}
