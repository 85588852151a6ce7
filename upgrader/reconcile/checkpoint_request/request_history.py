"""Effects of earlier requests on the next: turns in lanes, and gangs that refused or did not answer."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from upgrader.api.resources import CHECKPOINT_REQUESTS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import timing, untrusted
from upgrader.core.backoff import backoff_pause
from upgrader.core.checkpoint_request.acknowledgements import AckVerdict
from upgrader.core.checkpoint_request.admission_slots import Writer, admitted_requests, person_over
from upgrader.core.checkpoint_request.request_machine import LEFT_OUT
from upgrader.core.model.fleet import Refusals, Snapshot
from upgrader.core.model.phases import RequestPhase
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.runtime.context import Context

NOBODY: own_requests.Vouchers = frozenset()
"""No vouchers: a request that is only withdrawn writes no checkpoint."""


async def turns_now(context: Context, width: int) -> frozenset[str] | None:
    """Requests of all plans that may write a checkpoint now; None if there are no lanes.

    An admission checks this again under a gate (see `request_reconciler.advance_request`), since another plan may
    admit too.
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
    writers = (writer for request in asking if (writer := _lane_writer(request)) is not None)
    return admitted_requests(writers, width, context.clock.now())


def _lane_writer(request: CheckpointRequest) -> Writer | None:
    """The use of a lane by a request; None if its start cannot be read: then it takes no turn from others."""
    spec, admitted = request.spec, request.status.admitted_at
    since = untrusted.parse_instant(admitted)
    if admitted and since is None:
        return None
    writer = Writer(
        request=request.metadata.name,
        lane=spec.lane,
        timeout_seconds=spec.timeout_seconds,
        made_at=untrusted.parse_instant(request.metadata.creation_timestamp),
        by_person=spec.plan is None,
    )
    if writer.by_person:
        # Counted from its creation by the API server: a user wrote every other time in it.
        return msgspec.structs.replace(writer, turn_over=person_over(writer))
    over = timing.add_seconds(since, spec.timeout_seconds) if since is not None else None
    return msgspec.structs.replace(writer, turn_over=over)


def is_refused(request: CheckpointRequest) -> bool:
    """Whether the gang refused."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason == AckVerdict.REFUSED.value


def is_left_out(request: CheckpointRequest) -> bool:
    """Whether the gang did not acknowledge in time and declares that its nodes are left out then."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason == LEFT_OUT


def is_unanswered(request: CheckpointRequest) -> bool:
    """Whether the gang did not acknowledge in time."""
    return request.status.phase is RequestPhase.WITHDRAWN and request.status.reason in _IN_VAIN


_IN_VAIN = frozenset(
    {
        AckVerdict.WAITING.value,
        AckVerdict.WRONG_REQUEST.value,
        AckVerdict.UNEQUAL_STEPS.value,
        AckVerdict.NOT_PARKED.value,
        AckVerdict.EPHEMERAL.value,
        AckVerdict.EXPIRED.value,
        AckVerdict.UNASKABLE.value,
    }
)


class EarlierRequests(NamedTuple):
    """Number of unsuccessful requests of a plan to a job."""

    refused: int
    unanswered: int


def earlier_counts(requests: Iterable[CheckpointRequest], owner: str) -> EarlierRequests:
    """The counts for the next request to the job with this uid; each request continues the previous counts."""
    mine = [request for request in requests if request.spec.owner.uid == owner]
    return EarlierRequests(
        refused=max((request.spec.refused_before + is_refused(request) for request in mine), default=0),
        unanswered=max((request.spec.unanswered_before + is_unanswered(request) for request in mine), default=0),
    )


def with_refusals(snapshot: Snapshot, requests: Iterable[CheckpointRequest], retry: timedelta) -> Snapshot:
    """The snapshot with refusals and missing answers of its gangs in this plan.

    `retry`: pause after a refusal without a pause of its own; it grows each time. A recreated job of the same name is
    another job.
    """
    by_owner: dict[str, list[CheckpointRequest]] = {}
    for request in requests:
        if is_refused(request) or is_left_out(request) or is_unanswered(request):
            by_owner.setdefault(request.spec.owner.uid, []).append(request)
    gangs = tuple(
        msgspec.structs.replace(gang, refusals=_gang_refusals(requests_of_owner, retry))
        if gang.owner is not None and (requests_of_owner := by_owner.get(gang.owner.uid))
        else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def declined_by_gangs(requests: Iterable[CheckpointRequest], upgrades: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Upgrades that were withdrawn since a gang refused: the gang blocks its nodes now, not a pause."""
    groups = {request.spec.group for request in requests if is_refused(request) or is_left_out(request)}
    return frozenset(upgrade.metadata.name for upgrade in upgrades if upgrade.spec.group in groups)


def _gang_refusals(requests: Sequence[CheckpointRequest], retry: timedelta) -> Refusals:
    refusals = Refusals(left_out=any(is_left_out(request) for request in requests))
    if (no := _latest_request(request for request in requests if is_refused(request))) is not None:
        times, wish = no.spec.refused_before + 1, no.status.retry_after_seconds
        wait = backoff_pause(retry, times) if wish is None else timedelta(seconds=wish)
        refusals = msgspec.structs.replace(
            refusals, count=times, last=no.status.message, until=_time_after(no.status.refused_at, wait)
        )
    if (silence := _latest_request(request for request in requests if is_unanswered(request))) is not None:
        times = silence.spec.unanswered_before + 1
        until = _time_after(silence.status.ended_at, backoff_pause(retry, times))
        refusals = msgspec.structs.replace(
            refusals, unanswered=times, unanswered_last=silence.status.message, unanswered_until=until
        )
    return refusals


def _time_after(moment: str | None, pause: timedelta) -> datetime | None:
    since = untrusted.parse_instant(moment)
    return timing.add_seconds(since, pause.total_seconds()) if since is not None else None


def _latest_request(requests: Iterable[CheckpointRequest]) -> CheckpointRequest | None:
    return max(requests, key=lambda request: request.spec.request_id, default=None)
