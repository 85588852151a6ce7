"""The effect of current and past requests on later ones: lanes and refusals, as in reconcile."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from upgrader.core.checkpoint_request.acknowledgements import AckVerdict
from upgrader.core.checkpoint_request.admission_slots import Writer, admitted_requests
from upgrader.core.constraints.checkpoint_concurrency import LaneRequest
from upgrader.core.constraints.checkpoint_concurrency import request_offsets as in_turn
from upgrader.core.model.fleet import Gang, Refusals, Snapshot
from upgrader.core.model.phases import RequestPhase
from upgrader.simulate.controller.objects import Request


def find_admitted_requests(requests: Iterable[Request], width: int, now: datetime) -> frozenset[str] | None:
    """Requests that may write a checkpoint now; None if there are no lanes."""
    if not width:
        return None
    waiting = [request for request in requests if request.phase is RequestPhase.REQUESTED]
    return admitted_requests((_make_writer(request) for request in waiting), width, now)


def _make_writer(request: Request) -> Writer:
    turn_end = (
        request.admitted_at + timedelta(seconds=request.timeout_seconds) if request.admitted_at is not None else None
    )
    return Writer(request=request.name, lane=request.lane, timeout_seconds=request.timeout_seconds, turn_over=turn_end)


def longest_chain_seconds(gangs: Iterable[Gang], default: int, width: int) -> int:
    """The longest sequence of checkpoints of these gangs in their lanes, in seconds."""
    checkpoints = [
        LaneRequest(gang=gang.name, lane=gang.lane, seconds=gang.timeout_seconds or default) for gang in gangs
    ]
    begins = in_turn(checkpoints, width)
    return math.ceil(max((begins[checkpoint.gang] + checkpoint.seconds for checkpoint in checkpoints), default=default))


def find_refused_requests(requests: Iterable[Request]) -> list[Request]:
    """Requests that the gang refused."""
    return [
        request
        for request in requests
        if request.phase is RequestPhase.WITHDRAWN and request.reason == AckVerdict.REFUSED
    ]


def add_refusals(snapshot: Snapshot, refused: Sequence[Request], retry: timedelta) -> Snapshot:
    """The snapshot with the refusals of its gangs; a gang gets no request for `retry` after a refusal."""
    by_gang: dict[str, list[Request]] = {}
    for request in refused:
        by_gang.setdefault(request.gang, []).append(request)
    gangs = tuple(
        msgspec.structs.replace(gang, refusals=_count_refusals(by_gang[gang.name], retry))
        if gang.name in by_gang
        else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def _count_refusals(refused: Sequence[Request], retry: timedelta) -> Refusals:
    last = refused[-1]
    return Refusals(count=len(refused), last=last.message, until=last.began[RequestPhase.WITHDRAWN] + retry)
