"""Processes of the node that have a device of a driver open or mapped, with the pod or systemd unit of each.

Links below /proc are read and never followed: a file of a network file system whose server is gone blocks every program
that opens or stats it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.control_groups import read_owner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.host.text_files import read_optional

BUSY_POLL_SECONDS = 2.0


class DeviceHolder(Struct, frozen=True, kw_only=True):
    """A process. `pod` is the UID of its pod, `unit` its systemd unit; both are empty for other processes."""

    pid: int
    name: str
    pod: str = ""
    unit: str = ""

    def __str__(self) -> str:
        place = f", pod {self.pod}" if self.pod else f", {self.unit}" if self.unit else ""
        return f"pid {self.pid} ({self.name}{place})"


def find_device_holders(proc: Path, prefix: str) -> tuple[DeviceHolder, ...]:
    """The processes that have a file open or mapped whose path begins with `prefix`, such as /dev/nvidia, by PID.

    Args:
        proc: /proc of the node.
        prefix: begin of the paths of the device files.
    """
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return tuple(
        _describe_holder(proc / str(pid))
        for pid in pids
        if any(path.startswith(prefix) for path in _used_files(proc / str(pid)))
    )


def wait_until_unused(name: str, find_users: Callable[[], str], *, clock: NodeClock, seconds: float) -> None:
    """Wait at most `seconds` until nothing uses a driver; `find_users` returns them as text, empty if there is none.

    Raises:
        OrderFailedError: BUSY, with the users.
    """
    users = poll_until_no_fault(find_users, clock=clock, seconds=seconds, every=BUSY_POLL_SECONDS)
    if users:
        raise OrderFailedError(Reason.BUSY, f"{name} is in use: {users}")


def _used_files(process: Path) -> Iterator[str]:
    """Paths of the open and mapped files of a process; those of a process that has ended are none."""
    for folder in ("fd", "map_files"):
        try:
            links = list((process / folder).iterdir())
        except OSError:
            continue  # it has ended, or is a kernel thread
        for link in links:
            try:
                yield str(link.readlink())
            except OSError:
                continue  # the file was closed in the meantime


def _describe_holder(process: Path) -> DeviceHolder:
    owner = read_owner(process)
    try:
        name = read_optional(process / "comm")
    except OSError:
        name = ""
    return DeviceHolder(pid=int(process.name), name=name or "ended", pod=owner.pod, unit=owner.unit)
