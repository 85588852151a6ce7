"""The clock of the commands on a node, as a port; tests pass a virtual clock."""

import threading
import time
from collections.abc import Callable
from typing import Protocol


class NodeClock(Protocol):
    """A clock in seconds."""

    def monotonic(self) -> float:
        """Monotonic time, for deadlines."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...


class MonotonicClock:
    """The clock of the machine."""

    def __init__(self) -> None:
        self._never = threading.Event()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        self._never.wait(seconds)


def poll_until_no_fault(find_fault: Callable[[], str], *, clock: NodeClock, seconds: float, every: float = 0.25) -> str:
    """Poll until there is no fault, at most for `seconds`.

    `find_fault` returns the current fault as a part of a sentence, empty if there is none.

    Returns:
        The fault of the last poll; empty if there is none.
    """
    end = clock.monotonic() + seconds
    while fault := find_fault():
        remaining = end - clock.monotonic()
        if remaining <= 0:
            return fault
        clock.wait(min(every, remaining))
    return ""
