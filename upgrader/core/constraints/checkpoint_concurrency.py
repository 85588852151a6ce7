"""Checkpoint lanes: a limited number of gangs writes to one storage at the same time, the longest checkpoint first.

Gangs that do not declare where they write share one lane: it may be the same storage.
"""

import heapq
from collections.abc import Iterable

from msgspec import Struct

ROUNDS = 4
"""Most turns of a lane in one batch: a later request would keep the nodes and the budget of the batch waiting."""


class LaneRequest(Struct, frozen=True, kw_only=True):
    """A gang with a request, and the expected duration of its checkpoint; gangs of a group wait for each other."""

    gang: str
    lane: str
    seconds: float
    group: int = 0  # position of its group in the batch


def request_offsets(asked: Iterable[LaneRequest], width: int) -> dict[str, float]:
    """Seconds from the first request to that of each gang; `width` 0: all at the same time."""
    requests = list(asked)
    if not width:
        return {request.gang: 0.0 for request in requests}
    free: dict[str, list[float]] = {}
    at: dict[str, float] = {}
    # With equal durations group by group: a parked gang waits for the others of its group only.
    for request in sorted(requests, key=lambda entry: (-entry.seconds, entry.group, entry.gang)):
        lane = free.setdefault(request.lane, [0.0] * width)
        start = heapq.heappop(lane)
        at[request.gang] = start
        heapq.heappush(lane, start + request.seconds)
    return at


def parked_seconds(asked: Iterable[LaneRequest], at: dict[str, float]) -> dict[str, float]:
    """Seconds that each gang waits, parked, until the last of its group has acknowledged."""
    requests = list(asked)
    done: dict[int, float] = {}
    for gang in requests:
        done[gang.group] = max(done.get(gang.group, 0.0), at[gang.gang] + gang.seconds)
    return {gang.gang: done[gang.group] - at[gang.gang] - gang.seconds for gang in requests}
