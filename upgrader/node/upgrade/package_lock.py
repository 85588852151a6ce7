"""The lock of dpkg on the node: while an upgrade holds it, neither apt nor unattended-upgrades changes packages."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.host.text_files import read_optional

LOCK_FILE = "/var/lib/dpkg/lock-frontend"
"""Every program that changes packages locks it first, by fcntl(2): dpkg itself, apt, unattended-upgrades."""

LOCK_SECONDS = 60.0
"""Time to wait for another process in one run; each run is a pod, and the deadline of the phase ends them."""

_FLOCK = "hhqqi"
"""struct flock: type, whence, start, length, PID."""


@contextmanager
def hold_package_lock(host: Host, clock: NodeClock) -> Iterator[None]:
    """Hold the lock, which the kernel releases when this process ends, by any signal. Nodes without dpkg have none.

    Raises:
        OrderFailedError: another process changes packages (OCCUPIED: the order can be run again), or the file cannot be
            locked at all (MISSING).
    """
    descriptor = _open_lock(host)
    if descriptor is None:
        yield
        return
    try:
        holder = poll_until_no_fault(lambda: _take_lock(host, descriptor), clock=clock, seconds=LOCK_SECONDS)
        if holder:
            raise OrderFailedError(
                Reason.OCCUPIED,
                f"packages of the node are being changed: {holder} holds {LOCK_FILE}. This run has changed nothing; "
                "the upgrade continues when that process ends",
            )
        yield
    finally:
        os.close(descriptor)


def _open_lock(host: Host) -> int | None:
    """The opened file; None if packages cannot be changed: a node without dpkg, or with a read-only database."""
    if not host.path(str(Path(LOCK_FILE).parent)).is_dir():
        return None
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(host.path(LOCK_FILE), flags, 0o640)
    except OSError as error:
        if error.errno == errno.EROFS:
            return None
        if error.errno == errno.ENOSPC:
            raise
        raise _not_lockable(error) from error


def _take_lock(host: Host, descriptor: int) -> str:
    """Take the lock; returns its holder if it is taken, else an empty text."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EAGAIN}:
            raise _not_lockable(error) from error
        return _find_holder(host, descriptor)
    return ""


def _find_holder(host: Host, descriptor: int) -> str:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK or pid <= 0:
        return "another process"  # it has ended in the meantime, or is outside the PID namespace of the node
    name = read_optional(host.proc / str(pid) / "comm")
    return f"pid {pid} ({name})" if name else f"pid {pid}"


def _not_lockable(error: OSError) -> OrderFailedError:
    return OrderFailedError(
        Reason.MISSING, f"{LOCK_FILE} on the node cannot be locked, so its packages could change: {error.strerror}"
    )
