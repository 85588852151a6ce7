"""Who may write a checkpoint now: at most so many gangs of one storage lane at once, the longest checkpoint first.

Gangs whose lane nobody knows share one: they may write to the same storage. A gang holds its place from the moment that
it is asked until it has acknowledged, was let go, or has taken longer than its checkpoint may.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct


class Writer(Struct, frozen=True, kw_only=True):
    """A conversation that is in Asking."""

    request: str  # its name
    lane: str
    timeout_seconds: int
    turn_over: datetime | None = None  # when it gives its place back at the latest; None: it was not asked yet


def turns(writers: Iterable[Writer], width: int, now: datetime) -> frozenset[str] | None:
    """Requests that may be asked, or were; None where the width is 0: anybody may."""
    if width <= 0:
        return None
    everybody = sorted(writers, key=lambda one: (-one.timeout_seconds, one.request))
    taken = Counter(one.lane for one in everybody if one.turn_over is not None and now < one.turn_over)
    chosen = {one.request for one in everybody if one.turn_over is not None}
    for one in everybody:
        if one.turn_over is None and taken[one.lane] < width:
            taken[one.lane] += 1
            chosen.add(one.request)
    return frozenset(chosen)
