"""What askings that are under way, or over, mean for the next: lanes and refusals, as reconcile keeps them."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from upgrader.core.acknowledgement import Verdict
from upgrader.core.fleet import Gang, Refusals, Snapshot
from upgrader.core.lanes import Asked
from upgrader.core.lanes import turns as in_turn
from upgrader.core.phases import RequestPhase
from upgrader.core.writing import Writer, turns
from upgrader.simulate.ours.objects import Talk


def turns_now(talks: Iterable[Talk], width: int, now: datetime) -> frozenset[str] | None:
    """Conversations that may write a checkpoint now; None where there are no lanes."""
    if not width:
        return None
    waiting = [one for one in talks if one.phase is RequestPhase.REQUESTED]
    return turns((_writer(one) for one in waiting), width, now)


def _writer(talk: Talk) -> Writer:
    over = talk.marked_at + timedelta(seconds=talk.timeout_seconds) if talk.marked_at is not None else None
    return Writer(request=talk.name, lane=talk.lane, timeout_seconds=talk.timeout_seconds, turn_over=over)


def chain_of(gangs: Iterable[Gang], default: int, width: int) -> int:
    """The longest chain of checkpoints of these gangs, one after the other in their lanes, in seconds."""
    asked = [Asked(gang=gang.name, lane=gang.lane, seconds=gang.timeout_seconds or default) for gang in gangs]
    begins = in_turn(asked, width)
    return math.ceil(max((begins[one.gang] + one.seconds for one in asked), default=default))


def noes(talks: Iterable[Talk]) -> list[Talk]:
    """Conversations in which the gang said no."""
    return [one for one in talks if one.phase is RequestPhase.WITHDRAWN and one.reason == Verdict.REFUSED]


def with_refusals(snapshot: Snapshot, said: Sequence[Talk], retry: timedelta) -> Snapshot:
    """The snapshot, with what its gangs have said no to so far; each is left alone for `retry`."""
    by_gang: dict[str, list[Talk]] = {}
    for talk in said:
        by_gang.setdefault(talk.gang, []).append(talk)
    gangs = tuple(
        msgspec.structs.replace(gang, refusals=_refusals(by_gang[gang.name], retry)) if gang.name in by_gang else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def _refusals(said: Sequence[Talk], retry: timedelta) -> Refusals:
    last = said[-1]
    return Refusals(count=len(said), last=last.message, until=last.began[RequestPhase.WITHDRAWN] + retry)
