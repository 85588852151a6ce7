"""One upgrade at a time works on a node, whatever controllers and clocks believe: a lock that ends with its holder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from os import getpid

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.clock import Clock, until
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError

LOCK = "upgrade.lock"
"""In STATE_DIRECTORY. The kernel lets go of it when its holder dies, by whichever signal."""

ENDING_SECONDS = 10.0
"""So long a pod that was told to end may take; its successor waits for that, and for no more."""


@contextmanager
def holding_node(host: Host, upgrade: str, clock: Clock) -> Iterator[None]:
    """Hold the node's lock; it says in the file who holds it, for people and for the next that comes.

    Raises:
        OrderFailedError: another upgrade holds it. Nothing was touched, and another run finds it free.
    """
    path = host.state / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        wrong = until(lambda: _taken(file), clock=clock, seconds=ENDING_SECONDS)
        if wrong:
            raise OrderFailedError(
                Reason.OCCUPIED,
                f"{wrong}, which holds {host.on_node(path)}; nothing was touched. This upgrade goes on when that has "
                "ended: wait for it, or end that process on the node if its pod is gone",
            )
        file.truncate(0)
        file.write(f"upgrade {upgrade} (pid {getpid()})\n")
        file.flush()
        yield


def _taken(file: TextIOWrapper) -> str:
    """Take the lock; who has it, as a part of a sentence, where it cannot be taken."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return f"another process works on this node: {file.read().strip() or 'it has not said which'}"
    return ""
