"""Checkpoint lanes: only so many gangs write to one storage at once, the longest checkpoint first.

Gangs that do not say where they write share one lane: nobody knows that it is not the same storage.
"""

import heapq
from collections.abc import Iterable

from msgspec import Struct

ROUNDS = 4
"""Most turns of a lane in one batch: a gang that is asked later would keep the batch's nodes and budget waiting."""


class Asked(Struct, frozen=True, kw_only=True):
    """A gang that is asked, with the expected length of its checkpoint; gangs of a group wait for each other."""

    gang: str
    lane: str
    seconds: float
    group: int = 0  # position of its group in the batch


def turns(asked: Iterable[Asked], width: int) -> dict[str, float]:
    """Seconds after the first question at which each gang is asked; `width` 0: all at once."""
    every = list(asked)
    if not width:
        return {one.gang: 0.0 for one in every}
    free: dict[str, list[float]] = {}
    at: dict[str, float] = {}
    # Of equal lengths group by group: a gang that has parked waits for the others of its group only.
    for one in sorted(every, key=lambda one: (-one.seconds, one.group, one.gang)):
        lane = free.setdefault(one.lane, [0.0] * width)
        start = heapq.heappop(lane)
        at[one.gang] = start
        heapq.heappush(lane, start + one.seconds)
    return at


def parked(asked: Iterable[Asked], at: dict[str, float]) -> dict[str, float]:
    """Seconds that each gang waits, parked, until the last of its group has acknowledged."""
    every = list(asked)
    done: dict[int, float] = {}
    for one in every:
        done[one.group] = max(done.get(one.group, 0.0), at[one.gang] + one.seconds)
    return {one.gang: done[one.group] - at[one.gang] - one.seconds for one in every}
