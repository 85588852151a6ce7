"""A checkpoint request to one gang without a plan: it parks, its acknowledgements are read, and it is released.

Only the requesting process reconciles the request, with the same rules as a plan. If that process dies, the members
resume training when their park-seconds are over, and the next process that requests withdraws the old request.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import timing
from upgrader.core.checkpoint_request.request_state import GroupOfGang
from upgrader.core.errors import BlockedError, ConflictError, NotFoundError
from upgrader.core.model.fleet import Gang
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader.core.naming import object_name
from upgrader.core.workloads import placement
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader.reconcile.checkpoint_request.request_reconciler import advance_request
from upgrader.reconcile.render import custom_objects
from upgrader.reconcile.render.custom_objects import next_request_id
from upgrader.reconcile.runtime.context import Context, create_once

WATCHED = 120
"""Seconds of parking beyond the checkpoint: no member resumes before the answers of all were read."""

Sleep = Callable[[float], Awaitable[None]]
Show = Callable[[CheckpointRequest], None]

_NO_GROUP = GroupOfGang(nodes=())


async def request_checkpoint(
    context: Context, gang: Gang, resource: str, *, timeout_seconds: int, show: Show, sleep: Sleep
) -> CheckpointRequest:
    """Request a checkpoint of a gang now; returns the request when all have acknowledged, or when it has ended.

    Args:
        context: ports.
        gang: complete, declared, with an owner.
        resource: extended resource whose devices are its GPUs.
        timeout_seconds: longest duration of the checkpoint.
        show: called with the request after each step.
        sleep: pause between two steps, in seconds.

    Raises:
        BlockedError: no request to it is possible, or another one is open.
        ClusterError: the API server refused or did not answer.
    """
    check_askable(gang)
    await _withdraw_left_requests(context, gang, resource)
    request = await _create_request(context, gang, timeout_seconds)
    until = timing.format_time(timing.add_seconds(timing.parse_time(request.spec.asked_at), timeout_seconds))
    asking = GroupOfGang(nodes=(NodePhase.PREPARED,), ask_until=timing.parse_time(until))
    try:
        while request.status.phase is RequestPhase.REQUESTED:
            request = await _step_request(context, request, resource, asking, until)
            show(request)
            if request.status.phase is RequestPhase.REQUESTED:
                await sleep(context.active_seconds)
    finally:
        await _withdraw_request(context, request, resource, sleep)
    return request


def check_askable(gang: Gang) -> None:
    """Check that a checkpoint of a gang can be requested.

    Raises:
        BlockedError: it cannot; the error states why.
    """
    why = ""
    if gang.method in {"", "none"}:
        none = "It declares that it cannot checkpoint." if gang.method else "It declares no checkpoint method."
        why = gang.undeclared_because or none
    elif gang.owner is None:
        why = gang.cannot_stop or "Its pods have no controller that would create them again."
    elif not gang.complete:
        running = sum(member.running for member in gang.members)
        why = f"{running} of {max(gang.wanted, len(gang.members))} members run; only complete gangs get a request."
    if why:
        raise BlockedError(
            f"{gang.name} cannot get a checkpoint request",
            details=why,
            resolution="See docs/guides/job-authors/checkpointing.md.",
        )


async def _create_request(context: Context, gang: Gang, timeout_seconds: int) -> CheckpointRequest:
    now = context.clock.now()
    number = next_request_id(0, (member.request for member in gang.members), int(now.timestamp()))
    order = custom_objects.Ask(
        gang=gang,
        name=object_name(gang.name, "alone", str(number)),
        request_id=number,
        asked_at=now,
        park_seconds=timeout_seconds + WATCHED,
        timeout_seconds=timeout_seconds,
    )
    body = custom_objects.checkpoint_request(order)
    if not await create_once(context, CHECKPOINT_REQUESTS, body):
        raise BlockedError(f"{gang.name} already has a checkpoint request")
    return await _get_request(context, order.name, gang.namespace)


async def _get_request(context: Context, name: str, namespace: str) -> CheckpointRequest:
    request = await context.cluster.get(CHECKPOINT_REQUESTS, name, namespace)
    if request is None:
        raise NotFoundError(f"CheckpointRequest {name} was deleted")
    return request


async def _step_request(
    context: Context, request: CheckpointRequest, resource: str, around: GroupOfGang, until: str | None
) -> CheckpointRequest:
    """One step of the request; after a conflict the request is read again."""
    name, namespace = request.metadata.name, request.metadata.namespace
    live = await read_request(context, await _get_request(context, name, namespace), resource)
    try:
        await advance_request(context, live, around, where=placement.Placement, ask_until=until)
    except ConflictError:
        return await _get_request(context, name, namespace)
    return await _get_request(context, name, namespace)


async def _withdraw_request(context: Context, request: CheckpointRequest, resource: str, sleep: Sleep) -> None:
    """Release the members; retried until it is written, or until their park-seconds are over."""
    over = timing.parse_time(request.spec.asked_at) + timedelta(seconds=request.spec.park_seconds)
    while not is_final(request.status.phase):
        request = await _step_request(context, request, resource, _NO_GROUP, None)
        if not is_final(request.status.phase):
            if context.clock.now() > over:
                return
            await sleep(context.active_seconds)


async def _withdraw_left_requests(context: Context, gang: Gang, resource: str) -> None:
    """End a request whose process died; a request that is still in use is not disturbed."""
    for request in await context.cluster.list(CHECKPOINT_REQUESTS, gang.namespace):
        if request.spec.gang != gang.name or is_final(request.status.phase):
            continue
        if request.spec.plan is not None:
            raise BlockedError(f"plan {request.spec.plan} has an open checkpoint request for {gang.name}")
        over = timing.add_seconds(timing.parse_time(request.spec.asked_at), request.spec.park_seconds)
        if context.clock.now() <= over:
            raise BlockedError(
                f"{gang.name} already has a checkpoint request",
                details=f"CheckpointRequest {request.metadata.name} ends by {timing.format_time(over)}",
            )
        await _step_request(context, request, resource, _NO_GROUP, None)


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one member, for people."""

    pod: str
    step: int | None = None
    uri: str = ""
    parked: bool = False


def answer_lines(request: CheckpointRequest) -> tuple[MemberReport, ...]:
    """The answer of each member; a member without a step has not answered, or need not answer."""
    acks = {ack.pod_uid: ack for ack in request.status.acks}
    return tuple(
        MemberReport(
            pod=member.pod, step=acks[member.uid].step, uri=acks[member.uid].uri, parked=acks[member.uid].parked
        )
        if member.uid in acks
        else MemberReport(pod=member.pod)
        for member in request.spec.members
    )
