"""Reconciler of CheckpointRequests: performs and records the decisions of core.checkpoint_request."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import structlog

from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import timing
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, GroupOfGang
from upgrader.core.errors import UnaskableError, UpgraderError
from upgrader.core.model.phases import RequestPhase
from upgrader.core.workloads import placement
from upgrader.core.workloads.owner_kinds import Switch
from upgrader.reconcile.checkpoint_request import delivery_failures, live_owners, placement_hint, request_history
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest
from upgrader.reconcile.checkpoint_request.request_status import emit_event, status_of
from upgrader.reconcile.facts.pod_facts import asked_id
from upgrader.reconcile.ports import CheckpointMethod
from upgrader.reconcile.render.custom_objects import next_request_id
from upgrader.reconcile.runtime.context import Context, check_in_step, record_status

log = structlog.get_logger()

Where = Callable[[], placement.Placement]
"""Placement of a restarted gang; called only at the restart, since it reads all nodes."""

_R = RequestPhase


ORDER_SETTLES = timedelta(seconds=10)
"""Time from a command to its visible effect: a controller that accepted a command has executed it by then."""


class RequestStep(NamedTuple):
    """The result of one step of a request."""

    decision: GangDecision
    request: CheckpointRequest | None
    """The request after the step; None if it must be read again."""


async def advance_request(
    context: Context, live: LiveRequest, group: GroupOfGang, *, where: Where, ask_until: str | None, lane_width: int = 0
) -> RequestStep:
    """One step of a request; returns the decision and the written request.

    `lane_width`: gangs that may write to one lane at the same time; 0: any number.

    Raises:
        ConflictError: the owner or a member changed since it was read; the next step reads it again.
    """
    decision = request_machine.decide(live.view, group, context.clock.now())
    if decision.admitted and lane_width:
        # Another plan may have admitted a request since the turns were counted: they are counted again, under a gate
        # that is held until this turn is written.
        async with context.gates.lanes:
            again = msgspec.structs.replace(group, turns=await request_history.turns_now(context, lane_width))
            decision = request_machine.decide(live.view, again, context.clock.now())
            return await _perform_decision(context, live, group, decision, where=where, ask_until=ask_until)
    return await _perform_decision(context, live, group, decision, where=where, ask_until=ask_until)


async def _perform_decision(
    context: Context,
    live: LiveRequest,
    group: GroupOfGang,
    decision: GangDecision,
    *,
    where: Where,
    ask_until: str | None,
) -> RequestStep:
    """Perform the acts of a decision, then record it."""
    if live.unread and decision.phase is live.view.phase:
        decision = msgspec.structs.replace(decision, message=f"{decision.message} ({live.unread})")
    for act in decision.acts:
        context.leadership.check()
        context.crash.reached(("CheckpointRequest", live.view.phase.value, "before-act"))
        try:
            await _perform_act(context, live, act, where)
        except UnaskableError as error:
            await delivery_failures.record_failures(context, live.request, error)
            return RequestStep(decision, None)
        context.crash.reached(("CheckpointRequest", live.view.phase.value, "after-act"))
    if decision.new_id:
        await _ask_again(context, live)
        return RequestStep(decision, None)
    if decision.method:
        await delivery_failures.ask_by_next(context, live.request, decision)
        return RequestStep(decision, None)
    status, request = status_of(context, live, decision, ask_until, group.stop_seconds), live.request
    if status:
        request = await record_status(
            context, CHECKPOINT_REQUESTS, request.metadata, status, left=live.view.phase, entered=decision.phase
        )
        await emit_event(context, live, decision)
    return RequestStep(decision, request)


async def _perform_act(context: Context, live: LiveRequest, act: GangAct, where: Where) -> None:
    method: CheckpointMethod = context.methods[live.request.spec.method]
    request = live.request
    match act:
        case GangAct.REQUEST:
            await method.send_request(request, live.pods)
        case GangAct.WITHDRAW:
            await method.withdraw(request, live.pods)
        case GangAct.STOP:
            check_in_step(context)
            await live_owners.suspend_owner(context, live.owner, request)
        case GangAct.RESUME:
            await _resume_owner(context, live, where)
        case GangAct.FENCE:
            await live_owners.fence_owner(context, live.owner, request)


async def _resume_owner(context: Context, live: LiveRequest, where: Where) -> None:
    """Restart a gang, steered by its template or a policy, unless it has ended or was resumed by another client."""
    facts, owner = live.view.owner, live.owner
    is_suspended = facts.suspended and not facts.finished
    late = live.view.deadline is not None and context.clock.now() >= live.view.deadline
    steer = is_suspended and placement.is_steerable(owner.row, await context.cluster.version())
    if not is_suspended and not late and _may_go_off(context, live):
        # The record stays: if the controller accepts the command at this moment, the stopped owner is restarted.
        await live_owners.cancel_stop_order(context, owner, live.view.name)
        return
    if is_suspended and not steer:
        await placement_hint.write_placement(context, live.request, owner, where())
    if is_suspended and not late and owner.row.switch is Switch.COMMAND:
        await live_owners.order_on(
            context, owner, live.view.name
        )  # the record stays until the owner is observed to be on
        return
    try:
        await live_owners.resume_owner(context, owner, live.view.name, where() if steer else None)
    except UpgraderError as error:
        if not (error.refused and steer and late):
            raise
        # A webhook answers 403, the API server 422. At the deadline a stopped gang is restarted (law 9), even without
        # steering to a node.
        log.warning(
            "gang restarted without steering to upgraded nodes", gang=live.request.spec.gang, because=error.brief
        )
        await live_owners.resume_owner(context, owner, live.view.name, None)


def _may_go_off(context: Context, live: LiveRequest) -> bool:
    """Whether the controller of an owner may still execute a command to suspend it."""
    facts, since = live.view.owner, live.request.status.restarted_at
    ordered = live.owner.row.switch is Switch.COMMAND and not facts.suspended and not facts.finished
    return ordered and since is not None and context.clock.now() < timing.parse_time(since) + ORDER_SETTLES


def changes_nothing(
    context: Context, live: LiveRequest, group: GroupOfGang, decision: GangDecision, ask_until: str | None
) -> bool:
    """Whether a decision does nothing and writes nothing."""
    if decision.acts or decision.new_id or decision.method or decision.phase is not live.view.phase:
        return False
    return not status_of(context, live, decision, ask_until, group.stop_seconds)


async def _ask_again(context: Context, live: LiveRequest) -> None:
    """Repeat the request under a new id. The spec is written first: a crash leaves an expired request with a new id."""
    now = context.clock.now()
    seen = (asked_id(pod) for pod in live.pods)
    request_id = next_request_id(live.view.request_id, seen, int(now.timestamp()))
    patch = {"spec": {"requestId": request_id, "askedAt": timing.format_time(now)}}
    written = await context.cluster.merge(CHECKPOINT_REQUESTS, live.request.metadata, patch)
    context.crash.reached(("CheckpointRequest", live.view.phase.value, "after-act"))
    status: dict[str, Any] = {
        "phase": _R.REQUESTED.value,
        "reason": "AskedAgain",
        "message": "the request is repeated",
        "acks": [],
        "acknowledgedStep": None,
        "admittedAt": None,
    }
    await record_status(
        context, CHECKPOINT_REQUESTS, written.metadata, status, left=live.view.phase, entered=_R.REQUESTED
    )
