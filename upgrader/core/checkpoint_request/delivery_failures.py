"""Members that did not hear a request: how often in a row, and when a way of asking is given up for that."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

ENOUGH = 2
"""Misses in a row that rule a way out: one may be a single 502 of the API server's proxy."""

PAUSE = timedelta(seconds=5)
"""From one miss to the next asking: a connection that was just broken is made anew by then."""


class Miss(Struct, frozen=True, kw_only=True):
    """A member that could not be asked by the present method under the present request id."""

    pod_uid: str
    at: datetime  # the last time
    times: int = 1  # in a row
    why: str = ""


def counted(before: Sequence[Miss], missed: Mapping[str, str], now: datetime) -> tuple[Miss, ...]:
    """Misses after an asking; who heard it this time is not among them.

    Args:
        before: those of the askings before, in a row.
        missed: uid of each pod that did not hear it, and why.
        now: aware, UTC.
    """
    times = {one.pod_uid: one.times for one in before}
    return tuple(Miss(pod_uid=uid, at=now, times=times.get(uid, 0) + 1, why=why) for uid, why in sorted(missed.items()))


def ruled_out(misses: Sequence[Miss]) -> str:
    """Why the whole gang cannot be asked this way; empty while it may still be."""
    return next((one.why for one in misses if one.times >= ENOUGH), "")


def too_soon(misses: Sequence[Miss], now: datetime) -> bool:
    """Whether a miss is so young that asking again would tell nothing new."""
    return any(now < one.at + PAUSE for one in misses)
