"""What askings that are under way, or over, mean for the next: turns in lanes, and gangs that want to be left alone."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from upgrader.api.resources import CHECKPOINT_REQUESTS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import timing, untrusted
from upgrader.core.backoff import pause
from upgrader.core.checkpoint_request.acknowledgements import Verdict
from upgrader.core.checkpoint_request.admission_slots import Writer, person_over, turns
from upgrader.core.checkpoint_request.request_machine import LEFT_OUT
from upgrader.core.model.fleet import Refusals, Snapshot
from upgrader.core.model.phases import RequestPhase
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.runtime.context import Context

NOBODY: own_requests.Vouchers = frozenset()
"""What is only taken back writes no checkpoint."""


async def turns_now(context: Context, width: int) -> frozenset[str] | None:
    """Requests that may write a checkpoint now, whichever plan asks; None where there are no lanes.

    Whoever admits one looks again, alone (see `requests.advance`): by then another plan may have.
    """
    if width <= 0:
        return None
    listed = await context.cluster.list(CHECKPOINT_REQUESTS)
    plans = {plan.metadata.name: plan for plan in await context.cluster.list(UPGRADE_PLANS)}
    asking = [
        request
        for request in listed
        if request.status.phase is RequestPhase.REQUESTED
        and (request.spec.plan is None or own_requests.is_own(request, plans.get(request.spec.plan), NOBODY))
    ]
    writers = (writer for request in asking if (writer := _writer(request)) is not None)
    return turns(writers, width, context.clock.now())


def _writer(request: CheckpointRequest) -> Writer | None:
    """What a request has of its lane; None where nobody can read since when: it takes no place from others."""
    spec, marked = request.spec, request.status.marked_at
    since = untrusted.instant(marked)
    if marked and since is None:
        return None
    writer = Writer(
        request=request.metadata.name,
        lane=spec.lane,
        timeout_seconds=spec.timeout_seconds,
        made_at=untrusted.instant(request.metadata.creation_timestamp),
        by_person=spec.plan is None,
    )
    if writer.by_person:
        # Counted from when the API server made it: every other time in it is what somebody wrote there.
        return msgspec.structs.replace(writer, turn_over=person_over(writer))
    over = timing.after(since, spec.timeout_seconds) if since is not None else None
    return msgspec.structs.replace(writer, turn_over=over)


def refused(request: CheckpointRequest) -> bool:
    """Whether the gang said no."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason == Verdict.REFUSED.value


def left_out(request: CheckpointRequest) -> bool:
    """Whether the gang's nodes are left out of its plan, since it did not acknowledge in time and declares so."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason == LEFT_OUT


def unanswered(request: CheckpointRequest) -> bool:
    """Whether the gang was asked in vain: no acknowledgement of its own in time."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason in _IN_VAIN


_IN_VAIN = frozenset(
    {
        Verdict.WAITING.value,
        Verdict.WRONG_REQUEST.value,
        Verdict.UNEQUAL_STEPS.value,
        Verdict.NOT_PARKED.value,
        Verdict.EPHEMERAL.value,
        Verdict.EXPIRED.value,
        Verdict.UNASKABLE.value,
    }
)


class Earlier(NamedTuple):
    """How often a plan has asked a job in vain."""

    refused: int
    unanswered: int


def earlier(requests: Iterable[CheckpointRequest], owner: str) -> Earlier:
    """What the next request to the job with this uid counts: each request carries on what those before it counted."""
    mine = [one for one in requests if one.spec.owner.uid == owner]
    return Earlier(
        refused=max((one.spec.refused_before + refused(one) for one in mine), default=0),
        unanswered=max((one.spec.unanswered_before + unanswered(one) for one in mine), default=0),
    )


def with_refusals(snapshot: Snapshot, requests: Iterable[CheckpointRequest], retry: timedelta) -> Snapshot:
    """The snapshot, with what its gangs have said no to, or nothing, in this plan so far.

    `retry`: how long a gang is left alone that does not say how long it wants to be; longer each time. A job that was
    made again is another one, though it has the same name.
    """
    by_owner: dict[str, list[CheckpointRequest]] = {}
    for request in requests:
        if refused(request) or left_out(request) or unanswered(request):
            by_owner.setdefault(request.spec.owner.uid, []).append(request)
    gangs = tuple(
        msgspec.structs.replace(gang, refusals=_refusals(said, retry))
        if gang.owner is not None and (said := by_owner.get(gang.owner.uid))
        else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def declined_by_gangs(requests: Iterable[CheckpointRequest], upgrades: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Upgrades that were let go since a gang said no: since then the gang blocks its nodes, and time alone does not."""
    groups = {one.spec.group for one in requests if refused(one) or left_out(one)}
    return frozenset(one.metadata.name for one in upgrades if one.spec.group in groups)


def _refusals(said: Sequence[CheckpointRequest], retry: timedelta) -> Refusals:
    found = Refusals(left_out=any(left_out(one) for one in said))
    if (no := _latest(one for one in said if refused(one))) is not None:
        times, wish = no.spec.refused_before + 1, no.status.retry_after_seconds
        wait = pause(retry, times) if wish is None else timedelta(seconds=wish)
        found = msgspec.structs.replace(
            found, count=times, last=no.status.message, until=_after(no.status.refused_at, wait)
        )
    if (silence := _latest(one for one in said if unanswered(one))) is not None:
        times = silence.spec.unanswered_before + 1
        until = _after(silence.status.ended_at, pause(retry, times))
        found = msgspec.structs.replace(
            found, unanswered=times, unanswered_last=silence.status.message, unanswered_until=until
        )
    return found


def _after(moment: str | None, pause: timedelta) -> datetime | None:
    since = untrusted.instant(moment)
    return timing.after(since, pause.total_seconds()) if since is not None else None


def _latest(requests: Iterable[CheckpointRequest]) -> CheckpointRequest | None:
    return max(requests, key=lambda one: one.spec.request_id, default=None)
