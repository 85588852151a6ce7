"""Requests that members did not hear: recorded, so that a restart counts on, and what follows."""

from typing import Any

import msgspec
import structlog

from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import Missed
from upgrader.core import timing
from upgrader.core.checkpoint_request import delivery_failures
from upgrader.core.checkpoint_request.delivery_failures import Miss
from upgrader.core.checkpoint_request.request_state import GangDecision
from upgrader.core.errors import UnaskableError
from upgrader.reconcile.runtime.context import Context, record

log = structlog.get_logger()


def misses_of(request: CheckpointRequest) -> tuple[Miss, ...]:
    """Those of the present asking: neither of a method that was given up, nor of an earlier request id."""
    spec = request.spec
    return tuple(
        Miss(pod_uid=one.pod_uid, at=timing.parse(one.at), times=one.times, why=one.message)
        for one in request.status.missed
        if (one.method, one.request_id) == (spec.method, spec.request_id)
    )


async def note(context: Context, request: CheckpointRequest, error: UnaskableError) -> None:
    """Record who did not hear the request, and say so."""
    spec, now = request.spec, context.clock.now()
    log.warning("not heard", gang=spec.gang, method=spec.method, because=error.brief, details=error.details)
    found = [
        Missed(
            pod_uid=one.pod_uid,
            method=spec.method,
            request_id=spec.request_id,
            at=timing.show(one.at),
            times=one.times,
            message=one.why,
        )
        for one in delivery_failures.counted(misses_of(request), error.missed, now)
    ]
    status = {"reason": "Unheard", "message": str(error), "missed": msgspec.to_builtins(found)}
    await record(context, CHECKPOINT_REQUESTS, request.metadata, status)


async def ask_by_next(context: Context, request: CheckpointRequest, decision: GangDecision) -> None:
    """All members are asked by another method from now on, under the same id; those of the former were let go.

    The spec first: after a crash before the status is written, the misses there are of another method.
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
    await record(context, CHECKPOINT_REQUESTS, written.metadata, status)
