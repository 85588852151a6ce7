"""What askings that are under way, or over, mean for the next: turns in lanes, and gangs that want to be left alone."""

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import timing
from upgrader.core.acknowledgement import Verdict
from upgrader.core.conversation import LEFT_OUT
from upgrader.core.fleet import Refusals, Snapshot
from upgrader.core.phases import RequestPhase
from upgrader.core.writing import Writer, turns
from upgrader.reconcile.context import Context


async def turns_now(context: Context, width: int) -> frozenset[str] | None:
    """Requests that may write a checkpoint now, whichever plan asks; None where there are no lanes.

    Whoever admits one looks again, alone (see `talks.advance`): by then another plan may have.
    """
    if width <= 0:
        return None
    asking = [one for one in await context.cluster.list(CHECKPOINT_REQUESTS) if one.status.phase is RequestPhase.ASKING]
    return turns((_writer(one) for one in asking), width, context.clock.now())


def _writer(request: CheckpointRequest) -> Writer:
    spec = request.spec
    # A person who asks (without a plan) waits for nobody, and is counted from the first moment.
    marked = request.status.marked_at or (spec.asked_at if spec.plan is None else None)
    over = timing.after(timing.parse(marked), spec.timeout_seconds) if marked else None
    return Writer(request=request.metadata.name, lane=spec.lane, timeout_seconds=spec.timeout_seconds, turn_over=over)


def refused(request: CheckpointRequest) -> bool:
    """Whether the gang said no."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason == Verdict.REFUSED.value


def left_out(request: CheckpointRequest) -> bool:
    """Whether the gang's nodes are left out of its plan, since it did not acknowledge in time and declares so."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason == LEFT_OUT


def with_refusals(snapshot: Snapshot, requests: Iterable[CheckpointRequest], retry: timedelta) -> Snapshot:
    """The snapshot, with what its gangs have said no to in this plan so far.

    `retry`: how long a gang is left alone that does not say how long it wants to be.
    """
    by_gang: dict[str, list[CheckpointRequest]] = {}
    for request in requests:
        if refused(request) or left_out(request):
            by_gang.setdefault(request.spec.gang, []).append(request)
    gangs = tuple(
        msgspec.structs.replace(gang, refusals=_refusals(by_gang[gang.name], retry)) if gang.name in by_gang else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def held_by_gangs(requests: Iterable[CheckpointRequest], visits: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Visits that were let go since a gang said no: from then on the gang holds its nodes, and time alone does not."""
    closures = {one.spec.closure for one in requests if refused(one) or left_out(one)}
    return frozenset(one.metadata.name for one in visits if one.spec.closure in closures)


def _refusals(said: list[CheckpointRequest], retry: timedelta) -> Refusals:
    noes = sorted((one for one in said if refused(one)), key=lambda one: one.spec.request_id)
    last = noes[-1].status if noes else None
    until = None
    if last is not None and last.refused_at is not None:
        wish = last.retry_after_seconds
        until = timing.parse(last.refused_at) + (retry if wish is None else timedelta(seconds=wish))
    return Refusals(
        count=len(noes),
        last=last.message if last is not None else "",
        until=until,
        left_out=any(left_out(one) for one in said),
    )
