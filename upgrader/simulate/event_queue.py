"""Virtual time: a queue of actions, in whole seconds from the begin.

A heap is sufficient: due steps are level-triggered (a group is read again, a job ends), so there are no processes to
suspend and to resume, which a simulation library would provide.
"""

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

Act = Callable[[], None]

CLUSTER, UPGRADER = 0, 1
"""In the same second, actions of the cluster run before steps of the upgrader."""


class EventQueue:
    """The virtual time, and the actions that are due later."""

    def __init__(self, begin: datetime, ties: Random | None = None) -> None:
        self.begin = begin
        self.now = 0
        self.pending = {CLUSTER: 0, UPGRADER: 0}
        self._ties = ties
        self._heap: list[tuple[int, int, float, int, Act]] = []
        self._count = 0

    @property
    def time(self) -> datetime:
        """The current time, for the rules."""
        return self.time_at(self.now)

    def time_at(self, seconds_at: int) -> datetime:
        """Seconds from the begin as a time."""
        return self.begin + timedelta(seconds=seconds_at)

    def seconds_at(self, time_at: datetime) -> int:
        """A time as whole seconds from the begin, rounded up, so that an action is not too early."""
        return -(-(time_at - self.begin) // timedelta(seconds=1))

    def schedule_at(self, when: int, act: Act, kind: int = CLUSTER) -> None:
        """Schedule `act` for a second (the current one, if that is past), after earlier entries for the same second.

        With `ties`, actions of the same kind in the same second run in random order.
        """
        self._count += 1
        self.pending[kind] += 1
        tie = self._ties.random() if self._ties is not None else 0.0
        heapq.heappush(self._heap, (max(when, self.now), kind, tie, self._count, act))

    def schedule_after(self, seconds_at: int, act: Act, kind: int = CLUSTER) -> None:
        """Schedule `act` for so many seconds from now."""
        self.schedule_at(self.now + seconds_at, act, kind)

    def run_next(self, until: int) -> bool:
        """Run the next action, if there is one not later than `until`."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, kind, _, _, act = heapq.heappop(self._heap)
        self.pending[kind] -= 1
        act()
        return True
