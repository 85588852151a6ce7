"""The checkpoint request of one gang: read, decide (core/checkpoint_request/request_machine), act, record."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import structlog

from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import Ack, CheckpointRequest
from upgrader.core import timing, untrusted
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.acknowledgements import Answer, Verdict
from upgrader.core.checkpoint_request.owner_state import owner_facts
from upgrader.core.checkpoint_request.request_machine import RESTARTED_EARLY
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, GroupOfGang, OwnerFacts, RequestView
from upgrader.core.errors import ClusterError, UnaskableError, UpgraderError
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.gpu_resources import PoolGpus
from upgrader.core.model.phases import RequestPhase, ends, row
from upgrader.core.node_upgrade.upgrade_state import NO_ANSWER, REFUSAL
from upgrader.core.workloads import placement
from upgrader.core.workloads.checkpoint_annotations import leader
from upgrader.core.workloads.owner_kinds import Switch
from upgrader.core.workloads.suspend_patches import is_off
from upgrader.reconcile import asking, owners, placing, unheard
from upgrader.reconcile.context import Context, check_in_step, record
from upgrader.reconcile.member_answers import read_answers
from upgrader.reconcile.owners import LiveOwner, read_owner, read_pods
from upgrader.reconcile.pod_facts import asked_id, members_of
from upgrader.reconcile.ports import CheckpointMethod
from upgrader.telemetry import metrics

log = structlog.get_logger()

Where = Callable[[], placement.Placement]
"""Where a gang may be restarted; asked only when it is, since it looks at all nodes."""

_R = RequestPhase
_BY_GROUP = frozenset({_R.REQUESTED, _R.PARKED, _R.EXPIRED})
"""Phases that end with the asking of the whole group."""

_STOPPED = frozenset({_R.STOPPING, _R.STOPPED, _R.RESTARTING})
"""Phases in which a gang may be stopped by us."""

ORDER_SETTLES = timedelta(seconds=10)
"""From taking an order to what is to be seen of it: a controller that took one has acted on it by then."""


class LiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A CheckpointRequest, its owner and pods, as read for this step."""

    request: CheckpointRequest
    owner: LiveOwner
    pods: tuple[Pod, ...]
    view: RequestView
    unread: str = ""  # why its answers or its progress could not be read; then there is none of them

    @property
    def bound(self) -> bool:
        """Whether every wanted member of the restarted gang has a node."""
        alive = [pod for pod in self.pods if pod.status.phase not in {"Succeeded", "Failed"}]
        placed = [pod for pod in alive if pod.spec.node_name and pod.metadata.deletion_timestamp is None]
        return not self.view.owner.suspended and len(placed) >= self.view.owner.wanted


async def read_request(context: Context, request: CheckpointRequest, resource: str) -> LiveRequest:
    """The gang as it is now; answers and progress are read only in the phases that need them.

    Raises:
        ClusterError: its owner may not be read by us, and it may be stopped: nothing is known, so nothing is done.
    """
    owner = await read_owner(context, request.spec.owner, request.metadata.namespace)
    if owner.unread and request.status.phase in _STOPPED:
        raise ClusterError(owner.unread, details=f"{request.spec.owner.kind} {request.spec.owner.name}")
    pods: Sequence[Pod] = ()
    if not ends(request.status.phase):
        pods = await read_pods(context, owner, request)
    members = members_of(request, pods, PoolGpus(resource=resource))
    about_to_stop = request.status.phase is _R.STOPPING and owner.body is not None and not _is_off(owner)
    answers, progress, unread = await read_answers(context, request, pods, about_to_stop=about_to_stop)
    forbidden = ""
    if about_to_stop:
        forbidden = await owners.forbidden(context, request.spec.gang, owner, pods, members)
    if owner.unread:  # as good as no answer: the gang is let go at the latest when the asking ends
        answers = ()
    view = _view(request, owner, members, answers, progress, forbidden)
    return LiveRequest(request=request, owner=owner, pods=tuple(pods), view=view, unread=owner.unread or unread)


def _is_off(owner: LiveOwner) -> bool:
    return owner.body is not None and is_off(owner.row, owner.body)


def _view(
    request: CheckpointRequest,
    owner: LiveOwner,
    present: tuple[MemberFacts, ...],
    answers: tuple[Answer, ...],
    progress: dict[str, int],
    forbidden: str,
) -> RequestView:
    spec, status = request.spec, request.status
    asked = timing.parse(spec.asked_at)
    living = [one for one in present if not one.terminating and one.phase == "Running"]
    return RequestView(
        name=request.metadata.name,
        gang=spec.gang,
        phase=status.phase,
        deadline=timing.parse(status.deadline) if status.deadline else None,
        request_id=spec.request_id,
        asked_at=asked,
        stop_before=timing.after(asked, spec.park_seconds),
        restart_by=timing.parse(status.restart_by) if status.restart_by else None,
        members=tuple(member.uid for member in spec.members),
        present=present,
        answers=answers,
        owner=OwnerFacts() if owner.unread else owner_facts(owner.row, owner.body, spec.owner.uid, len(spec.members)),
        acknowledged_step=status.acknowledged_step,
        progress=_progress(living, progress, led=spec.leader is not None),
        forbidden=forbidden,
        method=spec.method,
        leader=spec.leader or "",
        max_loss_seconds=spec.max_loss_seconds,
        timeout_seconds=spec.timeout_seconds,
        on_deadline=spec.on_deadline,
        fallbacks=tuple(spec.fallbacks),
        misses=unheard.misses_of(request),
        lane=spec.lane,
        marked_at=timing.parse(status.marked_at) if status.marked_at else None,
    )


def _progress(living: Sequence[MemberFacts], said: dict[str, int], *, led: bool) -> tuple[int | None, ...]:
    first = leader(living) if led else None
    return tuple(said.get(one.uid if first is None else first.uid) for one in living)


class Advanced(NamedTuple):
    """One step of one request."""

    decision: GangDecision
    request: CheckpointRequest | None
    """As it is after it; None where it is to be read again."""


async def advance(
    context: Context, live: LiveRequest, group: GroupOfGang, *, where: Where, ask_until: str | None, lane_width: int = 0
) -> Advanced:
    """One step of one request: what was decided, and the request as it was written.

    `lane_width`: gangs that may write to one storage at once; 0: any number.

    Raises:
        ConflictError: the owner or a member changed since it was read; the next step looks again.
    """
    decision = request_machine.decide(live.view, group, context.clock.now())
    if decision.admitted and lane_width:
        # Another plan may have admitted one since the turns were counted: they are counted anew, and nobody else does
        # so before this turn is written.
        async with context.gates.lanes:
            again = msgspec.structs.replace(group, turns=await asking.turns_now(context, lane_width))
            decision = request_machine.decide(live.view, again, context.clock.now())
            return await _perform(context, live, decision, where=where, ask_until=ask_until)
    return await _perform(context, live, decision, where=where, ask_until=ask_until)


async def _perform(
    context: Context, live: LiveRequest, decision: GangDecision, *, where: Where, ask_until: str | None
) -> Advanced:
    """The acts of a decision, then its record."""
    if live.unread and decision.phase is live.view.phase:
        decision = msgspec.structs.replace(decision, message=f"{decision.message} ({live.unread})")
    for act in decision.acts:
        context.leadership.check()
        context.crash.reached(("CheckpointRequest", live.view.phase.value, "before-act"))
        try:
            await _act(context, live, act, where)
        except UnaskableError as error:
            await unheard.note(context, live.request, error)
            return Advanced(decision, None)
        context.crash.reached(("CheckpointRequest", live.view.phase.value, "after-act"))
    if decision.new_id:
        await _ask_again(context, live)
        return Advanced(decision, None)
    if decision.method:
        await unheard.ask_by_next(context, live.request, decision)
        return Advanced(decision, None)
    status, request = _status(context, live, decision, ask_until), live.request
    if status:
        request = await record(
            context, CHECKPOINT_REQUESTS, request.metadata, status, left=live.view.phase, entered=decision.phase
        )
        await _tell(context, live, decision)
    return Advanced(decision, request)


async def _act(context: Context, live: LiveRequest, act: GangAct, where: Where) -> None:
    method: CheckpointMethod = context.methods[live.request.spec.method]
    request = live.request
    match act:
        case GangAct.ASK:
            await method.ask(request, live.pods)
        case GangAct.WITHDRAW:
            await method.withdraw(request, live.pods)
        case GangAct.STOP:
            check_in_step(context)
            await owners.stop(context, live.owner, request)
        case GangAct.RESUME:
            await _resume(context, live, where)
        case GangAct.FENCE:
            await owners.fence(context, live.owner, request)


async def _resume(context: Context, live: LiveRequest, where: Where) -> None:
    """Restart, steered by its template or else by a policy: not if the gang has ended, nor if somebody resumed it."""
    facts, owner = live.view.owner, live.owner
    ours = facts.suspended and not facts.finished
    late = live.view.deadline is not None and context.clock.now() >= live.view.deadline
    steer = ours and placement.possible(owner.row, await context.cluster.version())
    if not ours and not late and _may_go_off(context, live):
        # Its record stays: should the order have been taken in this very moment, what goes off is restarted as ours.
        await owners.recall(context, owner, live.view.name)
        return
    if ours and not steer:
        await placing.tell_policy(context, live.request, owner, where())
    if ours and not late and owner.row.switch is Switch.COMMAND:
        await owners.order_on(context, owner, live.view.name)  # the record stays until it is seen to be on again
        return
    try:
        await owners.restart(context, owner, live.view.name, where() if steer else None)
    except UpgraderError as error:
        if not (error.refused and steer and late):
            raise
        # A webhook says 403, the API server 422. Refused until the deadline: what we stopped we restart (law 9), even
        # where nobody can say on which node.
        log.warning("restarted without steering", gang=live.request.spec.gang, because=error.brief)
        await owners.restart(context, owner, live.view.name, None)


def _may_go_off(context: Context, live: LiveRequest) -> bool:
    """Whether an owner that was ordered to go off, and is to go on now, may still act on that order."""
    facts, since = live.view.owner, live.request.status.restarted_at
    ordered = live.owner.row.switch is Switch.COMMAND and not facts.suspended and not facts.finished
    return ordered and since is not None and context.clock.now() < timing.parse(since) + ORDER_SETTLES


def stays(context: Context, live: LiveRequest, decision: GangDecision, ask_until: str | None) -> bool:
    """Whether a decision does nothing and writes nothing."""
    if decision.acts or decision.new_id or decision.method or decision.phase is not live.view.phase:
        return False
    return not _status(context, live, decision, ask_until)


async def record_refusal(context: Context, request: CheckpointRequest, error: UpgraderError) -> None:
    """Show in the request what was refused, or not answered; the next step tries again."""
    status = {"reason": REFUSAL if error.refused else NO_ANSWER, "message": str(error)}
    if (request.status.reason, request.status.message) != (status["reason"], status["message"]):
        await record(context, CHECKPOINT_REQUESTS, request.metadata, status)


async def _ask_again(context: Context, live: LiveRequest) -> None:
    """The spec first: a crash before the status is written finds an expired request with a fresh id."""
    now = context.clock.now()
    seen = (asked_id(pod) for pod in live.pods)
    request_id = next_request_id(live.view.request_id, seen, int(now.timestamp()))
    patch = {"spec": {"requestId": request_id, "askedAt": timing.show(now)}}
    written = await context.cluster.merge(CHECKPOINT_REQUESTS, live.request.metadata, patch)
    context.crash.reached(("CheckpointRequest", live.view.phase.value, "after-act"))
    status: dict[str, Any] = {
        "phase": _R.REQUESTED.value,
        "reason": "AskedAgain",
        "message": "asked again",
        "acks": [],
        "acknowledgedStep": None,
        "markedAt": None,
    }
    await record(context, CHECKPOINT_REQUESTS, written.metadata, status, left=live.view.phase, entered=_R.REQUESTED)


def next_request_id(last: int, seen: Iterable[str], now: int) -> int:
    """max(now in seconds, 1 + the highest id on any member): it grows even when objects were cleaned away."""
    known = (untrusted.whole(one) for one in seen)
    return max(now, 1 + max((last, *(one for one in known if one is not None))))


def _status(context: Context, live: LiveRequest, decision: GangDecision, ask_until: str | None) -> dict[str, Any]:
    before = live.request.status
    if decision.admitted:
        turn = timing.show(context.clock.now())
        return {"markedAt": turn, "reason": decision.reason, "message": decision.message}
    if GangAct.ASK in decision.acts and live.view.misses:  # everybody has heard it this time
        return {"reason": decision.reason, "message": decision.message, "missed": []}
    if decision.phase is before.phase:
        if (decision.reason, decision.message) == (before.reason, before.message) or not decision.message:
            return {}
        return {"reason": decision.reason, "message": decision.message}
    now = context.clock.now()
    status: dict[str, Any] = {
        "phase": decision.phase.value,
        "reason": decision.reason,
        "message": decision.message,
        "deadline": _deadline(decision.phase, now, ask_until),
    }
    match decision.phase:
        case _R.PARKED:
            status["acks"] = [
                msgspec.to_builtins(Ack(**msgspec.structs.asdict(answer))) for answer in live.view.answers
            ]
            status["acknowledgedStep"] = decision.step
        case _R.STOPPING:
            status["stoppedAt"] = timing.show(now)
            status["restartBy"] = timing.show(timing.after(now, row(_R.STOPPED).seconds or 0))
            status["terminated"] = decision.reason == Verdict.EXPENDABLE.value
        case _R.RESTARTING:
            status["restartedAt"] = timing.show(now)
            status["restartedEarly"] = decision.reason == RESTARTED_EARLY
        case _R.RESTORED:
            status["restoredAt"] = timing.show(now)
            status["progress"] = [step for step in live.view.progress if step is not None]
        case _R.WITHDRAWN if before.stopped_at is not None:
            # The stop was only intended: nobody was interrupted.
            status |= {"stoppedAt": None, "restartBy": None, "terminated": None}
        case _R.WITHDRAWN if decision.reason == Verdict.REFUSED.value:
            status |= {"refusedAt": timing.show(now), "retryAfterSeconds": decision.retry_after_seconds}
        case _R.REQUESTED | _R.STOPPED | _R.EXPIRED | _R.WITHDRAWN | _R.ENDED:
            pass
    since = _since(live.request)
    metrics.PHASE_SECONDS.labels("CheckpointRequest", live.view.phase.value).observe((now - since).total_seconds())
    return status | _idle(live, decision.phase, now)


def _idle(live: LiveRequest, phase: RequestPhase, now: datetime) -> dict[str, Any]:
    """What the loss of a gang is counted by: since when it does not train, and until when."""
    before, parked = live.request.status, [one.parked for one in live.view.answers]
    if phase is _R.PARKED and parked and all(parked):
        return {"parkedAt": timing.show(now)}
    # A gang of which one member stands still stands still, whatever the others say.
    stood = before.parked_at is not None or (live.view.phase is _R.REQUESTED and any(parked))
    if phase is _R.WITHDRAWN and stood and before.parked_at is None:
        return {"parkedAt": timing.show(now), "endedAt": timing.show(now)}
    if phase is _R.EXPIRED and stood:
        kept = (now - live.view.asked_since).total_seconds()
        return {"parkedAt": None, "parkedSeconds": before.parked_seconds + max(0, round(kept))}
    return {"endedAt": timing.show(now)} if ends(phase) else {}


def _since(request: CheckpointRequest) -> datetime:
    """When the present phase began: told by its deadline where that is its own, else by when the gang was asked."""
    phase, deadline, seconds = request.status.phase, request.status.deadline, row(request.status.phase).seconds
    if phase in _BY_GROUP or deadline is None or seconds is None:
        return timing.parse(request.spec.asked_at)
    return timing.after(timing.parse(deadline), -seconds)


def _deadline(phase: RequestPhase, now: datetime, ask_until: str | None) -> str | None:
    if phase in _BY_GROUP and ask_until is not None:
        return ask_until
    seconds = row(phase).seconds
    return None if ends(phase) or seconds is None else timing.show(timing.after(now, seconds))


async def _tell(context: Context, live: LiveRequest, decision: GangDecision) -> None:
    """Events on the owner: whose job it is learns there why it was stopped, and that it came back."""
    if decision.phase is live.view.phase or live.owner.body is None:
        return
    plan, step = live.request.spec.plan, live.view.acknowledged_step
    terminated = live.request.status.terminated
    where = "without an acknowledgement, as its approval allows" if terminated else f"at step {step}"
    texts = {
        _R.STOPPED: ("StoppedForUpgrade", f"stopped for plan {plan} {where}"),
        _R.RESTARTING: (
            "RestartedAfterUpgrade",
            f"restarted by plan {plan}{'' if terminated else f' from step {step}'}",
        ),
        _R.RESTORED: (
            "RestoredAfterUpgrade",
            f"{'runs' if terminated else f'past step {step}'} again after plan {plan}",
        ),
        _R.WITHDRAWN: ("CheckpointWithdrawn", decision.message),
        _R.ENDED: ("RequestEnded", decision.message),
    }
    if decision.phase in texts:
        reason, message = texts[decision.phase]
        whole, resource = live.owner.meta, live.owner.resource
        await context.cluster.event(
            ObjectMeta(name=whole.name, namespace=whole.namespace, uid=whole.uid),
            resource.kind,
            resource.api_version,
            reason=reason,
            message=message,
            warning=decision.phase is _R.ENDED,
        )
