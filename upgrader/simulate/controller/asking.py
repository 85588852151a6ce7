"""What askings that are under way, or over, mean for the next: lanes and refusals, as reconcile keeps them."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from upgrader.core.checkpoint_request.acknowledgements import Verdict
from upgrader.core.checkpoint_request.admission_slots import Writer, admitted_requests
from upgrader.core.constraints.checkpoint_concurrency import Asked
from upgrader.core.constraints.checkpoint_concurrency import request_offsets as in_turn
from upgrader.core.model.fleet import Gang, Refusals, Snapshot
from upgrader.core.model.phases import RequestPhase
from upgrader.simulate.controller.objects import Request


def turns_now(requests: Iterable[Request], width: int, now: datetime) -> frozenset[str] | None:
    """Requests that may write a checkpoint now; None where there are no lanes."""
    if not width:
        return None
    waiting = [one for one in requests if one.phase is RequestPhase.REQUESTED]
    return admitted_requests((_make_writer(one) for one in waiting), width, now)


def _make_writer(request: Request) -> Writer:
    over = request.admitted_at + timedelta(seconds=request.timeout_seconds) if request.admitted_at is not None else None
    return Writer(request=request.name, lane=request.lane, timeout_seconds=request.timeout_seconds, turn_over=over)


def chain_of(gangs: Iterable[Gang], default: int, width: int) -> int:
    """The longest chain of checkpoints of these gangs, one after the other in their lanes, in seconds."""
    asked = [Asked(gang=gang.name, lane=gang.lane, seconds=gang.timeout_seconds or default) for gang in gangs]
    begins = in_turn(asked, width)
    return math.ceil(max((begins[one.gang] + one.seconds for one in asked), default=default))


def refused_requests(requests: Iterable[Request]) -> list[Request]:
    """Requests in which the gang said no."""
    return [one for one in requests if one.phase is RequestPhase.WITHDRAWN and one.reason == Verdict.REFUSED]


def with_refusals(snapshot: Snapshot, said: Sequence[Request], retry: timedelta) -> Snapshot:
    """The snapshot, with what its gangs have said no to so far; each is left alone for `retry`."""
    by_gang: dict[str, list[Request]] = {}
    for request in said:
        by_gang.setdefault(request.gang, []).append(request)
    gangs = tuple(
        msgspec.structs.replace(gang, refusals=_count_refusals(by_gang[gang.name], retry))
        if gang.name in by_gang
        else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def _count_refusals(said: Sequence[Request], retry: timedelta) -> Refusals:
    last = said[-1]
    return Refusals(count=len(said), last=last.message, until=last.began[RequestPhase.WITHDRAWN] + retry)
