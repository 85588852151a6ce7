"""Failed deliveries of a request: how many in a row per member, and when they rule a checkpoint method out."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

ENOUGH = 2
"""Misses in a row that rule a checkpoint method out: the first may be a single 502 of the API server's proxy."""

PAUSE = timedelta(seconds=5)
"""From a miss to the next delivery: a connection that broke is open again by then."""


class Miss(Struct, frozen=True, kw_only=True):
    """A member that the present method did not reach under the present request id."""

    pod_uid: str
    at: datetime  # the last time
    times: int = 1  # in a row
    why: str = ""


def count_misses(before: Sequence[Miss], missed: Mapping[str, str], now: datetime) -> tuple[Miss, ...]:
    """Misses after a delivery; members that it reached are not among them.

    Args:
        before: the misses of the deliveries before, in a row.
        missed: uid of each pod that the delivery did not reach, and why.
        now: aware, UTC.
    """
    times = {miss.pod_uid: miss.times for miss in before}
    return tuple(Miss(pod_uid=uid, at=now, times=times.get(uid, 0) + 1, why=why) for uid, why in sorted(missed.items()))


def describe_ruled_out(misses: Sequence[Miss]) -> str:
    """Why the method is ruled out for the whole gang; empty while it is not."""
    return next((miss.why for miss in misses if miss.times >= ENOUGH), "")


def is_too_soon(misses: Sequence[Miss], now: datetime) -> bool:
    """Whether a miss is so recent that another delivery would give the same result."""
    return any(now < miss.at + PAUSE for miss in misses)
