"""Who may write a checkpoint now: at most so many gangs of one storage lane at once, the longest checkpoint first.

Gangs whose lane nobody knows share one: they may write to the same storage. A gang holds its place from the moment that
it is asked until it has acknowledged, was let go, or has taken longer than its checkpoint may.

A person who asks without a plan waits for nobody. What plans ask later waits for that, and not for long: anybody may
make any number of such requests.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

PERSON = timedelta(minutes=10)
"""A person's asking keeps a place for no longer than this."""


class Writer(Struct, frozen=True, kw_only=True):
    """A request that is Requested."""

    request: str  # its name
    lane: str
    timeout_seconds: int
    turn_over: datetime | None = None  # when it gives its place back at the latest; None: it was not asked yet
    made_at: datetime | None = None  # when the request was made; None: not known
    by_person: bool = False


def turns(writers: Iterable[Writer], width: int, now: datetime) -> frozenset[str] | None:
    """Requests that may be asked, or were; None where the width is 0: anybody may."""
    if width <= 0:
        return None
    found = list(writers)
    persons = [one for one in found if one.by_person and one.turn_over is not None and now < one.turn_over]
    everybody = sorted((one for one in found if not one.by_person), key=lambda one: (-one.timeout_seconds, one.request))
    taken = Counter(one.lane for one in everybody if one.turn_over is not None and now < one.turn_over)
    chosen = {one.request for one in everybody if one.turn_over is not None}
    for one in everybody:
        before = sum(each.lane == one.lane and _earlier(each, one) for each in persons)
        if one.turn_over is None and taken[one.lane] + before < width:
            taken[one.lane] += 1
            chosen.add(one.request)
    return frozenset(chosen)


def person_over(writer: Writer) -> datetime | None:
    """When a person's asking gives its place back at the latest; None where it takes none."""
    if writer.made_at is None:
        return None
    return writer.made_at + min(timedelta(seconds=writer.timeout_seconds), PERSON)


def _earlier(person: Writer, other: Writer) -> bool:
    # What persons ask while a plan's asking waits does not put it off, or it might wait for ever.
    return person.made_at is not None and (other.made_at is None or person.made_at < other.made_at)
