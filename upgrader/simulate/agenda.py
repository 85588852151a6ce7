"""Virtual time: what happens when, in whole seconds from the begin.

A heap and nothing more: what is due is level-triggered (a group looks again, a job ends), so there are no processes
to suspend and to resume, which is what a simulation library would bring.
"""

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

Act = Callable[[], None]

WORLD, OURS = 0, 1
"""At the same second the world moves first, then whoever upgrades it looks."""


class Agenda:
    """Time, and what is still to come."""

    def __init__(self, begin: datetime, ties: Random | None = None) -> None:
        self.begin = begin
        self.now = 0
        self.left = {WORLD: 0, OURS: 0}
        self._ties = ties
        self._heap: list[tuple[int, int, float, int, Act]] = []
        self._count = 0

    @property
    def time(self) -> datetime:
        """Now, as the rules take it."""
        return self.moment(self.now)

    def moment(self, seconds: int) -> datetime:
        """Seconds from the begin as a time."""
        return self.begin + timedelta(seconds=seconds)

    def seconds(self, moment: datetime) -> int:
        """A time as whole seconds from the begin, rounded up: what is due then is due."""
        return -(-(moment - self.begin) // timedelta(seconds=1))

    def at(self, when: int, act: Act, kind: int = WORLD) -> None:
        """`act` at a time (now, where that is past), after what was entered for that second before.

        With `ties`, things of one kind at one second come in any order.
        """
        self._count += 1
        self.left[kind] += 1
        tie = self._ties.random() if self._ties is not None else 0.0
        heapq.heappush(self._heap, (max(when, self.now), kind, tie, self._count, act))

    def after(self, seconds: int, act: Act, kind: int = WORLD) -> None:
        """`act` so many seconds from now."""
        self.at(self.now + seconds, act, kind)

    def step(self, until: int) -> bool:
        """The next thing, if there is one not later than `until`."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, kind, _, _, act = heapq.heappop(self._heap)
        self.left[kind] -= 1
        act()
        return True
