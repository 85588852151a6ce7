"""Asking one gang without a plan: it parks, its acknowledgements are seen, and it is let go whatever happens.

Whoever asks drives the request, with the same rules as a plan; nobody else does. Where they die in the middle, the
members train on when their park-seconds are over, and what is left of the request is taken back by the next who asks.
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
from upgrader.core.model.phases import NodePhase, RequestPhase, ends
from upgrader.core.naming import object_name
from upgrader.core.workloads import placement
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader.reconcile.checkpoint_request.request_reconciler import advance
from upgrader.reconcile.render import custom_objects
from upgrader.reconcile.render.custom_objects import next_request_id
from upgrader.reconcile.runtime.context import Context, create_once

WATCHED = 120
"""Seconds of parking beyond the checkpoint: nobody trains on before the answers of all were seen."""

Sleep = Callable[[float], Awaitable[None]]
Show = Callable[[CheckpointRequest], None]

_LET_GO = GroupOfGang(nodes=())


async def ask(
    context: Context, gang: Gang, resource: str, *, timeout_seconds: int, show: Show, sleep: Sleep
) -> CheckpointRequest:
    """Ask a gang now; the request as it was when everybody had acknowledged, or when it ended without that.

    Args:
        context: ports.
        gang: complete, declared, with an owner.
        resource: extended resource whose devices are its GPUs.
        timeout_seconds: longest that the checkpoint may take.
        show: is given the request after each step.
        sleep: pause between two steps, in seconds.

    Raises:
        BlockedError: it cannot be asked, or is being asked by somebody else.
        ClusterError: the API server refused or did not answer.
    """
    check(gang)
    await _take_back(context, gang, resource)
    request = await _begin(context, gang, timeout_seconds)
    until = timing.show(timing.after(timing.parse(request.spec.asked_at), timeout_seconds))
    asking = GroupOfGang(nodes=(NodePhase.PREPARED,), ask_until=timing.parse(until))
    try:
        while request.status.phase is RequestPhase.REQUESTED:
            request = await _step(context, request, resource, asking, until)
            show(request)
            if request.status.phase is RequestPhase.REQUESTED:
                await sleep(context.active_seconds)
    finally:
        await _let_go(context, request, resource, sleep)
    return request


def check(gang: Gang) -> None:
    """Whether a gang can be asked.

    Raises:
        BlockedError: it cannot, and why.
    """
    why = ""
    if gang.method in {"", "none"}:
        none = "It declares that it cannot checkpoint." if gang.method else "It does not say how to ask it."
        why = gang.undeclared_because or none
    elif gang.owner is None:
        why = gang.cannot_stop or "Nothing would make its pods again."
    elif not gang.complete:
        running = sum(member.running for member in gang.members)
        why = f"{running} of {max(gang.wanted, len(gang.members))} members run; only complete gangs are asked."
    if why:
        raise BlockedError(f"{gang.name} cannot be asked", details=why, resolution="See docs/checkpointing.md.")


async def _begin(context: Context, gang: Gang, timeout_seconds: int) -> CheckpointRequest:
    now = context.clock.now()
    number = next_request_id(0, (one.request for one in gang.members), int(now.timestamp()))
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
        raise BlockedError(f"{gang.name} is being asked by somebody else at this very moment")
    return await _read(context, order.name, gang.namespace)


async def _read(context: Context, name: str, namespace: str) -> CheckpointRequest:
    found = await context.cluster.get(CHECKPOINT_REQUESTS, name, namespace)
    if found is None:
        raise NotFoundError(f"CheckpointRequest {name} was deleted by somebody")
    return found


async def _step(
    context: Context, request: CheckpointRequest, resource: str, around: GroupOfGang, until: str | None
) -> CheckpointRequest:
    """One step of the request; what somebody changed meanwhile is looked at again."""
    name, namespace = request.metadata.name, request.metadata.namespace
    live = await read_request(context, await _read(context, name, namespace), resource)
    try:
        await advance(context, live, around, where=placement.Placement, ask_until=until)
    except ConflictError:
        return await _read(context, name, namespace)
    return await _read(context, name, namespace)


async def _let_go(context: Context, request: CheckpointRequest, resource: str, sleep: Sleep) -> None:
    """Members train on; tried until it is written, or until they do so by themselves."""
    over = timing.parse(request.spec.asked_at) + timedelta(seconds=request.spec.park_seconds)
    while not ends(request.status.phase):
        request = await _step(context, request, resource, _LET_GO, None)
        if not ends(request.status.phase):
            if context.clock.now() > over:
                return
            await sleep(context.active_seconds)


async def _take_back(context: Context, gang: Gang, resource: str) -> None:
    """End what somebody left who asked and died; whoever still asks is not disturbed."""
    for request in await context.cluster.list(CHECKPOINT_REQUESTS, gang.namespace):
        if request.spec.gang != gang.name or ends(request.status.phase):
            continue
        if request.spec.plan is not None:
            raise BlockedError(f"{gang.name} is in a checkpoint request with plan {request.spec.plan}")
        over = timing.after(timing.parse(request.spec.asked_at), request.spec.park_seconds)
        if context.clock.now() <= over:
            raise BlockedError(
                f"{gang.name} is being asked by somebody else",
                details=f"CheckpointRequest {request.metadata.name} ends by {timing.show(over)}",
            )
        await _step(context, request, resource, _LET_GO, None)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one member said, for people."""

    pod: str
    step: int | None = None
    uri: str = ""
    parked: bool = False


def lines(request: CheckpointRequest) -> tuple[Line, ...]:
    """What each member said; a member without a step has not answered, or does not have to."""
    said = {one.pod_uid: one for one in request.status.acks}
    return tuple(
        Line(pod=one.pod, step=said[one.uid].step, uri=said[one.uid].uri, parked=said[one.uid].parked)
        if one.uid in said
        else Line(pod=one.pod)
        for one in request.spec.members
    )
