"""How much the `sim` devices are used: CPU time and memory of the processes that hold their files. No GPU is measured.

A process holds a device while its file is among the process's open files, as the driver's `unload` sees it. On a real
driver simulated devices are all the same device node, so there the name under which it was opened says which it is.
What a process uses counts in equal parts for the devices that it holds.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.node.driver import devices

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
FULL = 100.0

_Identity = tuple[int, int]
"""Of a process: its pid and when it started, because pids are used again. Of a file: its device and inode."""


class Load(Struct, frozen=True, kw_only=True):
    """Of one device: `percent` of a CPU since the look before, at most 100, and bytes of memory."""

    percent: float = 0.0
    memory: float = 0.0


class _Holder(Struct, frozen=True, kw_only=True):
    """A process with its devices; `cpu` in seconds since it began, `memory` in bytes (resident)."""

    identity: _Identity
    devices: frozenset[str]
    cpu: float
    memory: int


class DeviceLoad:
    """Looks at the node's processes now and then; between two looks the last result stands.

    Args:
        folder: the device files; None on a real driver.
        proc: shows the node's processes (hostPID).
    """

    def __init__(self, folder: Path | None, proc: Path = Path("/proc")) -> None:
        self._folder = folder
        self._proc = proc
        self._before: Mapping[_Identity, float] = {}
        self._looked_at = 0.0
        self.loads: Mapping[str, Load] = {}
        """By device; none where nobody holds it. Replaced as a whole, so that other threads may read it."""
        self.unreadable = 0
        """Processes whose open files may not be seen: what they use counts for no device."""

    def look(self, now: float) -> None:
        """See who holds which device, and what they used since the look before.

        Args:
            now: seconds of a clock that only goes forward.
        """
        holders = list(self._holders())
        elapsed = now - self._looked_at if self._looked_at else 0.0
        percent: dict[str, float] = {}
        memory: dict[str, float] = {}
        for one in holders:
            # What it did before it was first seen is not known to lie between the looks.
            spent = one.cpu - self._before.get(one.identity, one.cpu)
            for name in one.devices:
                share = FULL * spent / elapsed / len(one.devices) if elapsed > 0 else 0.0
                percent[name] = percent.get(name, 0.0) + share
                memory[name] = memory.get(name, 0.0) + one.memory / len(one.devices)
        self.loads = {name: Load(percent=min(FULL, percent[name]), memory=memory[name]) for name in percent}
        self._before = {one.identity: one.cpu for one in holders}
        self._looked_at = now

    def _holders(self) -> Iterator[_Holder]:
        files = self._files()
        unreadable = 0
        for entry in os.scandir(self._proc) if files or self._folder is None else ():
            if not entry.name.isdigit():
                continue
            try:
                held = _held(Path(entry.path) / "fd", files)
            except PermissionError:
                unreadable += 1
                continue
            found = _holder(Path(entry.path), held) if held else None
            if found is not None:
                yield found
        self.unreadable = unreadable

    def _files(self) -> dict[_Identity, str]:
        """The device files as open files are recognised: by device and inode, whatever a container calls them."""
        if self._folder is None or not self._folder.is_dir():
            return {}
        facts = ((entry.name, entry.stat()) for entry in os.scandir(self._folder))
        return {(one.st_dev, one.st_ino): name for name, one in facts}


def _held(descriptors: Path, files: Mapping[_Identity, str]) -> frozenset[str]:
    try:
        opened = tuple(descriptors.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()  # it ended while we looked
    return frozenset(name for one in opened if (name := _device(one, files)))


def _device(descriptor: Path, files: Mapping[_Identity, str]) -> str:
    """The device that an open file is; empty where it is none, or was closed meanwhile."""
    try:
        facts = descriptor.stat()
        if stat.S_ISCHR(facts.st_mode):
            name = descriptor.readlink().name
            return name if devices.is_name(name) else ""
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return files.get((facts.st_dev, facts.st_ino), "")


def _holder(process: Path, held: frozenset[str]) -> _Holder | None:
    try:
        # Fields of stat, counted behind the name, which may hold blanks and brackets (proc(5)).
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Holder(
        identity=(int(process.name), int(fields[19])),
        devices=held,
        cpu=(int(fields[11]) + int(fields[12])) / TICKS,
        memory=int(fields[21]) * PAGE,
    )
