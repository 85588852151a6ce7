"""Admission of gangs to a storage lane: at most a given number write at the same time, the longest checkpoint first.

Gangs of unknown lane share one lane: they may write to the same storage. A gang holds its slot from the moment that its
request is sent until it acknowledges, is withdrawn, or exceeds the time that its checkpoint may take.

A request of a user, without a plan, does not wait. Later requests of plans wait for it, but not for long: any user
can make any number of such requests.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

PERSON = timedelta(minutes=10)
"""A user's request holds a slot for no longer than this."""


class Writer(Struct, frozen=True, kw_only=True):
    """A request in phase Requested."""

    request: str  # its name
    lane: str
    timeout_seconds: int
    turn_over: datetime | None = None  # when it releases its slot at the latest; None: it was not sent yet
    made_at: datetime | None = None  # when the request was created; None: not known
    by_person: bool = False


def admitted_requests(writers: Iterable[Writer], width: int, now: datetime) -> frozenset[str] | None:
    """Requests that may be sent, or were; None if the width is 0, which admits all."""
    if width <= 0:
        return None
    requests = list(writers)
    persons = [
        person for person in requests if person.by_person and person.turn_over is not None and now < person.turn_over
    ]
    plans = [writer for writer in requests if not writer.by_person]
    plans.sort(key=lambda writer: (-writer.timeout_seconds, writer.request))
    taken = Counter(writer.lane for writer in plans if writer.turn_over is not None and now < writer.turn_over)
    chosen = {writer.request for writer in plans if writer.turn_over is not None}
    for writer in plans:
        before = sum(person.lane == writer.lane and _is_made_before(person, writer) for person in persons)
        if writer.turn_over is None and taken[writer.lane] + before < width:
            taken[writer.lane] += 1
            chosen.add(writer.request)
    return frozenset(chosen)


def person_over(writer: Writer) -> datetime | None:
    """When a user's request releases its slot at the latest; None if it takes none."""
    if writer.made_at is None:
        return None
    return writer.made_at + min(timedelta(seconds=writer.timeout_seconds), PERSON)


def _is_made_before(person: Writer, other: Writer) -> bool:
    # A user's request that is newer does not delay a plan's request that waits, or that could wait without end.
    return person.made_at is not None and (other.made_at is None or person.made_at < other.made_at)
