"""Failed deliveries of requests to members: recorded, so that a restarted controller continues to count them."""

from typing import Any

import msgspec
import structlog

from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import MissedMember
from upgrader.core import timing
from upgrader.core.checkpoint_request import delivery_failures
from upgrader.core.checkpoint_request.delivery_failures import Miss
from upgrader.core.checkpoint_request.request_state import GangDecision
from upgrader.core.errors import UnaskableError
from upgrader.reconcile.runtime.context import Context, record_status

log = structlog.get_logger()


def misses_of(request: CheckpointRequest) -> tuple[Miss, ...]:
    """Failures of the present attempt: neither of an abandoned method, nor of an earlier request id."""
    spec = request.spec
    return tuple(
        Miss(pod_uid=missed.pod_uid, at=timing.parse_time(missed.at), times=missed.times, why=missed.message)
        for missed in request.status.missed
        if (missed.method, missed.request_id) == (spec.method, spec.request_id)
    )


async def record_failures(context: Context, request: CheckpointRequest, error: UnaskableError) -> None:
    """Record and log the members that the request did not reach."""
    spec, now = request.spec, context.clock.now()
    log.warning(
        "checkpoint request not delivered",
        gang=spec.gang,
        method=spec.method,
        because=error.brief,
        details=error.details,
    )
    missed = [
        MissedMember(
            pod_uid=miss.pod_uid,
            method=spec.method,
            request_id=spec.request_id,
            at=timing.format_time(miss.at),
            times=miss.times,
            message=miss.why,
        )
        for miss in delivery_failures.count_misses(misses_of(request), error.missed, now)
    ]
    status = {"reason": "Unheard", "message": str(error), "missed": msgspec.to_builtins(missed)}
    await record_status(context, CHECKPOINT_REQUESTS, request.metadata, status)


async def ask_by_next(context: Context, request: CheckpointRequest, decision: GangDecision) -> None:
    """Switch the request to the next method, under the same id; the former method was withdrawn.

    The spec is written first: after a crash before the status write, the recorded failures are of another method.
    """
    rest = [name for name in request.spec.fallbacks if name != decision.method]
    patch = {"spec": {"method": decision.method, "fallbacks": rest}}
    log.warning(
        "falling back to the next checkpoint method",
        gang=request.spec.gang,
        because=decision.message,
        then=decision.method,
    )
    context.leadership.check()
    written = await context.cluster.merge(CHECKPOINT_REQUESTS, request.metadata, patch)
    context.crash.reached(("CheckpointRequest", request.status.phase.value, "after-act"))
    status: dict[str, Any] = {"reason": decision.reason, "message": decision.message, "missed": []}
    await record_status(context, CHECKPOINT_REQUESTS, written.metadata, status)
