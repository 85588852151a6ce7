"""A lock that allows one upgrade at a time on a node, independent of controllers; it ends with its process."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from os import getpid

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError

LOCK_FILE = "upgrade.lock"
"""File in STATE_DIRECTORY. The kernel releases the lock when the process ends, by any signal."""

LOCK_SECONDS = 10.0
"""Time to wait for the lock: at least the termination grace period of the previous pod."""


@contextmanager
def hold_node_lock(host: Host, upgrade: str, clock: NodeClock) -> Iterator[None]:
    """Hold the lock of the node; the file contains the name of the upgrade.

    Raises:
        OrderFailedError: another upgrade holds the lock; nothing was changed, and the order can be run again.
    """
    path = host.state / LOCK_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        holder = poll_until_no_fault(lambda: _take_lock(file), clock=clock, seconds=LOCK_SECONDS)
        if holder:
            raise OrderFailedError(
                Reason.OCCUPIED,
                f"{holder}, which holds {host.on_node(path)}; nothing was changed. This upgrade continues when that "
                "process ends: wait for it, or end it on the node if its pod no longer exists",
            )
        file.truncate(0)
        file.write(f"upgrade {upgrade} (pid {getpid()})\n")
        file.flush()
        yield


def _take_lock(file: TextIOWrapper) -> str:
    """Take the lock; returns its holder as a part of a sentence if it is taken, else an empty text."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return f"another process works on this node: {file.read().strip() or 'an unknown upgrade'}"
    return ""
