"""The usage of the `sim` devices: CPU time and memory of the processes that hold their files. No GPU is measured.

A process holds a device while the file is among its open files, as in `unload` of the driver. With a real driver all
simulated devices are the same device node, and are distinguished by the name by which the node was opened. The usage
of a process is divided equally between its devices.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.node.validation import devices

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_PERCENT = 100.0

_Identity = tuple[int, int]
"""Of a process: PID and start time, since PIDs are reused. Of a file: device and inode."""


class DeviceUsage(Struct, frozen=True, kw_only=True):
    """Usage of a device: `percent` of a CPU since the last measurement, at most 100, and `memory` in bytes."""

    percent: float = 0.0
    memory: float = 0.0


class _Holder(Struct, frozen=True, kw_only=True):
    """A process with its devices; `cpu` in seconds since its start, `memory` in bytes (resident)."""

    identity: _Identity
    devices: frozenset[str]
    cpu: float
    memory: int


class DeviceLoad:
    """Measures the usage of devices; `loads` has the last result.

    Args:
        folder: folder of the device files; None with a real driver.
        proc: /proc with the processes of the node (hostPID).
    """

    def __init__(self, folder: Path | None, proc: Path = Path("/proc")) -> None:
        self._folder = folder
        self._proc = proc
        self._before: Mapping[_Identity, float] = {}
        self._measured_at = 0.0
        self.loads: Mapping[str, DeviceUsage] = {}
        """Usage by name of the device, of devices that a process holds. Replaced as a whole, for other threads."""
        self.unreadable = 0
        """Number of processes whose open files cannot be read; their usage counts for no device."""

    def measure(self, now: float) -> None:
        """Measure the usage since the last measurement.

        Args:
            now: seconds of a monotonic clock.
        """
        holders = list(self._list_holders())
        elapsed = now - self._measured_at if self._measured_at else 0.0
        percent: dict[str, float] = {}
        memory: dict[str, float] = {}
        for holder in holders:
            # The CPU time of a new process may be from before the last measurement.
            spent = holder.cpu - self._before.get(holder.identity, holder.cpu)
            for name in holder.devices:
                share = MAX_PERCENT * spent / elapsed / len(holder.devices) if elapsed > 0 else 0.0
                percent[name] = percent.get(name, 0.0) + share
                memory[name] = memory.get(name, 0.0) + holder.memory / len(holder.devices)
        self.loads = {
            name: DeviceUsage(percent=min(MAX_PERCENT, percent[name]), memory=memory[name]) for name in percent
        }
        self._before = {holder.identity: holder.cpu for holder in holders}
        self._measured_at = now

    def _list_holders(self) -> Iterator[_Holder]:
        files = self._device_files()
        unreadable = 0
        for entry in os.scandir(self._proc) if files or self._folder is None else ():
            if not entry.name.isdigit():
                continue
            try:
                held = _held_devices(Path(entry.path) / "fd", files)
            except PermissionError:
                unreadable += 1
                continue
            holder = _read_holder(Path(entry.path), held) if held else None
            if holder is not None:
                yield holder
        self.unreadable = unreadable

    def _device_files(self) -> dict[_Identity, str]:
        """Names of the devices by device and inode of their files, since paths differ between containers."""
        if self._folder is None or not self._folder.is_dir():
            return {}
        entries = ((entry.name, entry.stat()) for entry in os.scandir(self._folder))
        return {(status.st_dev, status.st_ino): name for name, status in entries}


def _held_devices(descriptors: Path, files: Mapping[_Identity, str]) -> frozenset[str]:
    try:
        opened = tuple(descriptors.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()  # the process ended in the meantime
    return frozenset(name for descriptor in opened if (name := _device_of_file(descriptor, files)))


def _device_of_file(descriptor: Path, files: Mapping[_Identity, str]) -> str:
    """The device of an open file; empty if it is another file or was closed in the meantime."""
    try:
        facts = descriptor.stat()
        if stat.S_ISCHR(facts.st_mode):
            name = descriptor.readlink().name
            return name if devices.is_device_name(name) else ""
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return files.get((facts.st_dev, facts.st_ino), "")


def _read_holder(process: Path, held: frozenset[str]) -> _Holder | None:
    try:
        # Fields of stat after the name, which may contain spaces and parentheses (proc(5)).
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Holder(
        identity=(int(process.name), int(fields[19])),
        devices=held,
        cpu=(int(fields[11]) + int(fields[12])) / TICKS,
        memory=int(fields[21]) * PAGE,
    )
