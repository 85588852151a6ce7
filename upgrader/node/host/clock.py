"""Time as the commands on a node see it; tests pass a clock of their own."""

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Seconds."""

    def monotonic(self) -> float:
        """A clock that never jumps, for deadlines."""
        ...

    def wait(self, seconds: float) -> None:
        """Let so many seconds pass."""
        ...


class SystemClock:
    """The machine's own."""

    def __init__(self) -> None:
        self._never = threading.Event()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        self._never.wait(seconds)


def until(look: Callable[[], str], *, clock: Clock, seconds: float, every: float = 0.25) -> str:
    """Look until nothing is wrong any more, at most for `seconds`.

    `look` says what is wrong now, as a part of a sentence; empty when all is well.

    Returns:
        Empty when all is well, else what was wrong at the last look.
    """
    end = clock.monotonic() + seconds
    while wrong := look():
        left = end - clock.monotonic()
        if left <= 0:
            return wrong
        clock.wait(min(every, left))
    return ""
