"""What happens next between us and one gang: pure, from what was read to a decision with its reason.

Law 1 lives here: STOP is decided only on a judgement made from pods listed right before, and the gang's fellows of the
group are stopped with it or let go with it.
"""

from datetime import datetime, timedelta

from msgspec import structs

from upgrader.core.checkpoint_request.acknowledgements import LAST_CALL, Asked, Judgement, Verdict, earlier, judge
from upgrader.core.checkpoint_request.delivery_failures import ruled_out, too_soon
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, GroupOfGang, RequestView
from upgrader.core.model.phases import NodePhase, RequestPhase, ends

_R, _N = RequestPhase, NodePhase
OVER = frozenset({_N.RELEASING, _N.SUCCEEDED, _N.FAILED, _N.NODE_DELETED})
SWAPPING = frozenset({_N.UNLOADING, _N.UPGRADING, _N.LOADING, _N.VALIDATING})
"""Phases in which a node's gang is of no use to it: it may go on elsewhere, and the upgrade goes on without it."""

RESTARTED_EARLY = "RestartedEarly"
LEFT_OUT = "NodesLeftOut"
"""Reason of a gang that did not acknowledge in time and declares on-deadline: skip-node."""

OUTGROWN = "GroupOutgrown"
"""Reason of a gang that is larger, right before its stop, than what its batch has counted."""

_UNSTOPPED = frozenset({_R.REQUESTED, _R.PARKED, _R.EXPIRED})


def decide(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    """The next step of one request. Never raises; doubt is waiting."""
    if ends(view.phase):
        return _finished(view)
    ended = _ended(view)
    if ended is not None:
        return ended
    if view.phase in _UNSTOPPED:
        let_go = _let_go(view, group, now)
        if let_go is not None:
            return let_go
    match view.phase:
        case _R.REQUESTED:
            return _asking(view, group, now)
        case _R.PARKED:
            return _parked(view, group, now)
        case _R.EXPIRED:
            return _expired(view, group)
        case _R.STOPPING:
            return _stopping(view, group, now)
        case _R.STOPPED:
            return _stopped(view, group, now)
        case _R.RESTARTING:
            return _restarting(view, now)
        case _R.RESTORED | _R.WITHDRAWN | _R.ENDED:
            return _finished(view)


def judgement(view: RequestView, now: datetime) -> Judgement:
    """What the gang's answers amount to now."""
    asked = Asked(
        members=view.members,
        request_id=view.request_id,
        asked_at=view.asked_since,
        stop_before=view.stop_before,
        leader=view.leader,
        max_loss_seconds=view.max_loss_seconds,
    )
    return judge(asked, present=view.present, answers=view.answers, wanted=view.owner.wanted, now=now)


def settled(view: RequestView, group: GroupOfGang, now: datetime) -> Judgement:
    """The answers, or in their place the approval: law 1's one exception.

    A gang that the approval names expendable is asked all the same; it may be stopped when it says no, or nothing for
    as long as one checkpoint may take. One that has acknowledged is treated like any other.
    """
    said = judgement(view, now)
    answered = said.verdict in {Verdict.VALID, Verdict.REPLACED} or view.acknowledged_step is not None
    in_vain = "" if answered or view.fallbacks else ruled_out(view.misses)
    if in_vain and said.verdict not in _NO:
        said = Judgement(verdict=Verdict.UNASKABLE, message=in_vain)
    if answered or view.gang not in group.expendable:
        return said
    if view.method == "none" or said.verdict in _NO or now >= view.turn_over:
        return Judgement(verdict=Verdict.EXPENDABLE, message=f"named expendable by the approval ({said.message})")
    return said


_NO = frozenset({Verdict.REFUSED, Verdict.EPHEMERAL, Verdict.UNASKABLE})
_SAFE = frozenset({Verdict.VALID, Verdict.EXPENDABLE})


def _stay(view: RequestView, reason: str, message: str, *acts: GangAct) -> GangDecision:
    return GangDecision(phase=view.phase, reason=reason, message=message, acts=acts, step=view.acknowledged_step)


def _go(view: RequestView, phase: RequestPhase, reason: str, message: str, *acts: GangAct) -> GangDecision:
    return GangDecision(phase=phase, reason=reason, message=message, acts=acts, step=view.acknowledged_step)


def _finished(view: RequestView) -> GangDecision:
    return _stay(view, "", "")


def _ended(view: RequestView) -> GangDecision | None:
    """The gang went its own way: there is nothing to stop or restart any more."""
    if not view.owner.present:
        return _go(view, _R.ENDED, "Deleted", "the job was deleted by somebody else")
    if view.owner.finished:
        # A job may finish while it is being stopped; our record must not outlive the request.
        acts = (GangAct.RESUME,) if view.owner.stopped_by == view.name else ()
        return _go(view, _R.ENDED, "Finished", "the job ended by itself", *acts)
    by_others = view.owner.suspended and view.owner.stopped_by != view.name
    if by_others and view.phase is not _R.RESTARTING:
        acts = (GangAct.WITHDRAW,) if view.phase in _UNSTOPPED else ()
        return _go(
            view, _R.ENDED, "SuspendedByOthers", "the job was suspended by somebody else, who restarts it too", *acts
        )
    return None


def _let_go(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision | None:
    if group.undo:
        return _go(view, _R.WITHDRAWN, "Aborted", "the plan was aborted; the gang trains on", GangAct.WITHDRAW)
    if not group.nodes or any(phase in OVER for phase in group.nodes):
        return _go(
            view, _R.WITHDRAWN, "GroupLetGo", "the upgrade group was let go; the gang trains on", GangAct.WITHDRAW
        )
    if _R.WITHDRAWN in group.siblings:
        return _go(
            view,
            _R.WITHDRAWN,
            "FellowNotAcknowledged",
            "another gang on the same nodes did not acknowledge; this one trains on",
            GangAct.WITHDRAW,
        )
    if _past(group.ask_until, now) or _past(view.deadline, now):
        return _too_late(view, group, _last_said(view, now))
    return None


def _last_said(view: RequestView, now: datetime) -> Judgement:
    """What the answers amounted to while they counted: that parking is over, too, explains no missing one."""
    return judgement(view, min(now, view.stop_before - LAST_CALL - timedelta(seconds=1)))


def _too_late(view: RequestView, group: GroupOfGang, said: Judgement) -> GangDecision:
    unaskable = said.verdict is Verdict.UNASKABLE
    what = "it cannot be asked" if unaskable else "no acknowledgement of the whole upgrade group in time"
    sentence = f"{what} ({said.message}); the gang trains on"
    if said.verdict is Verdict.VALID:
        return _go(view, _R.WITHDRAWN, "NotAcknowledged", sentence, GangAct.WITHDRAW)
    if view.on_deadline == "skip-node":
        sentence += "; its nodes are left out of this plan, as it declares"
        return _go(view, _R.WITHDRAWN, LEFT_OUT, sentence, GangAct.WITHDRAW)
    if view.on_deadline == "terminate" and view.gang not in group.expendable:
        sentence += "; it declares terminate, which counts where the approval names it expendable"
    return _go(view, _R.WITHDRAWN, said.verdict, sentence, GangAct.WITHDRAW)


def _asking(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    verdict = settled(view, group, now)
    match verdict.verdict:
        case Verdict.VALID | Verdict.EXPENDABLE:
            return GangDecision(phase=_R.PARKED, reason=verdict.verdict, message=verdict.message, step=verdict.step)
        case Verdict.REPLACED | Verdict.REFUSED | Verdict.EPHEMERAL:
            return structs.replace(
                _go(view, _R.WITHDRAWN, verdict.verdict, verdict.message, GangAct.WITHDRAW),
                retry_after_seconds=verdict.retry_after_seconds,
            )
        case Verdict.UNASKABLE:
            return _too_late(view, group, verdict)
        case Verdict.EXPIRED:
            return _go(view, _R.EXPIRED, verdict.verdict, verdict.message)
        case Verdict.WAITING | Verdict.WRONG_REQUEST | Verdict.UNEQUAL_STEPS | Verdict.NOT_PARKED:
            return _waiting(view, group, verdict, now)


def _waiting(view: RequestView, group: GroupOfGang, verdict: Judgement, now: datetime) -> GangDecision:
    in_vain = ruled_out(view.misses)
    if in_vain:
        following = view.fallbacks[0]
        message = f"{in_vain}; all members are asked by {following} instead"
        return structs.replace(_stay(view, "NextMethod", message, GangAct.WITHDRAW), method=following)
    if group.turns is not None and view.marked_at is None:
        if view.name not in group.turns:
            lane = f"lane {view.lane}" if view.lane else "a lane that no job names"
            return _stay(view, "WaitingForLane", f"others write their checkpoints to {lane}; it is asked after them")
        return structs.replace(_stay(view, "LaneFree", "its turn to write a checkpoint"), admitted=True)
    # Who was asked under a higher id by somebody else is left to that one: ids grow, and two must not take turns.
    unasked = [one for one in view.present if one.uid in view.members and earlier(one.request, view.request_id)]
    if not any(one.phase != "Succeeded" for one in unasked):
        return _stay(view, verdict.verdict, verdict.message)
    if too_soon(view.misses, now):
        return _stay(view, "Unheard", "")
    return _stay(view, verdict.verdict, verdict.message, GangAct.ASK)


def _parked(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    verdict = settled(view, group, now)
    if verdict.verdict is Verdict.EXPIRED:
        return _go(view, _R.EXPIRED, verdict.verdict, verdict.message)
    if verdict.verdict not in _SAFE:
        return _go(view, _R.WITHDRAWN, verdict.verdict, verdict.message, GangAct.WITHDRAW)
    draining = bool(group.nodes) and all(phase is _N.DRAINING for phase in group.nodes)
    if not draining:
        return _stay(view, verdict.verdict, verdict.message)
    if any(phase in {_R.REQUESTED, _R.EXPIRED} for phase in group.siblings):
        return _stay(view, "WaitingForFellows", "another gang of the upgrade group has not acknowledged yet")
    if group.pods_left:
        # Where they stay there is no upgrade, and this stop would be the gang's only one.
        return _stay(view, "WaitingForPods", f"not stopped yet: {group.pods_left}")
    return _go(view, _R.STOPPING, _stop_reason(verdict), f"{_what_is_safe(view, verdict)}; stopping the whole gang")


def _expired(view: RequestView, group: GroupOfGang) -> GangDecision:
    if any(phase in {_N.TAINTING, _N.DRAINING} for phase in group.nodes):
        return _go(
            view, _R.WITHDRAWN, Verdict.EXPIRED, "parking ended before the upgrade group was ready", GangAct.WITHDRAW
        )
    return GangDecision(phase=_R.REQUESTED, reason="AskedAgain", message="asked again under a higher id", new_id=True)


def _stopping(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    if view.owner.stopped_by != view.name:
        return _stop_now(view, group, now)
    if view.owner.ordered and not view.owner.suspended:
        return _ordered(view, group, now)
    if not view.owner.suspended:
        return _resumed_by_others(view)
    left = [one for one in view.present if one.phase not in {"Succeeded", "Failed"}]
    if not view.owner.unconfirmed and not left and view.owner.active == 0:
        return _go(view, _R.STOPPED, "Stopped", f"stopped at step {view.acknowledged_step}")
    if group.undo or all(phase in OVER for phase in group.nodes) or _past(view.deadline, now):
        return _go(
            view, _R.RESTARTING, "StopUndone", "the upgrade group was let go while the gang stopped; restarting it"
        )
    count = len(left) or view.owner.active
    what = f"{count} pod(s) to end" if count else "its controller to say that it is stopped"
    return _stay(view, "Stopping", f"waiting for {what}")


def _ordered(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    """Recorded, and the order may be lost: it is given again while the acknowledgement is good, else all is undone."""
    if group.undo or all(phase in OVER for phase in group.nodes) or _past(view.deadline, now):
        return _go(view, _R.RESTARTING, "StopUndone", "the upgrade group was let go before the gang stopped")
    verdict = settled(view, group, now)
    if verdict.verdict is Verdict.WAITING or (verdict.verdict in _SAFE and view.forbidden):
        return _stay(view, "Stopping", f"not ordered again yet: {view.forbidden or verdict.message}")
    if verdict.verdict not in _SAFE:
        return _go(view, _R.RESTARTING, "StopUndone", f"not stopped: {verdict.message}")
    return _stay(view, "Stopping", "ordered to stop; waiting for its controller to begin", GangAct.STOP)


def _stop_now(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    """The stop is intended but not in the owner: judged once more, from pods listed for this very step."""
    back = (GangAct.WITHDRAW, GangAct.FENCE)
    if group.undo or any(phase in OVER for phase in group.nodes):
        return _go(view, _R.WITHDRAWN, "GroupLetGo", "the upgrade group was let go before the stop", *back)
    if _R.WITHDRAWN in group.siblings:
        # Its nodes are about to be let go: this stop would be the gang's only one, and for nothing.
        return _go(view, _R.WITHDRAWN, "FellowNotAcknowledged", "another gang on the same nodes was let go", *back)
    if group.grown:
        return _go(view, _R.WITHDRAWN, OUTGROWN, f"not stopped: {group.grown}", *back)
    if _past(view.deadline, now):
        why = view.forbidden or "the stop did not succeed in time"
        return _go(view, _R.WITHDRAWN, "NotStopped", f"{why}; it trains on", *back)
    verdict = settled(view, group, now)
    if verdict.verdict is Verdict.WAITING:
        # Answered before and not readable right now: doubt holds, until parking ends.
        return _stay(view, verdict.verdict, f"not stopped yet: {verdict.message}")
    if verdict.verdict not in _SAFE:
        why = f"{view.forbidden}, until {verdict.message}" if view.forbidden else verdict.message
        return _go(view, _R.WITHDRAWN, verdict.verdict, f"not stopped: {why}", *back)
    if view.forbidden:
        return _stay(view, "DisruptionForbidden", f"not stopped yet: {view.forbidden}")
    if group.pods_left:
        return _stay(view, "WaitingForPods", f"not stopped yet: {group.pods_left}")
    if group.forbidden or _R.PARKED in group.siblings:
        # All or none: where a fellow cannot be stopped there is no upgrade, and this stop would be the gang's only one.
        return _stay(view, "WaitingForFellows", f"not stopped yet: {group.forbidden or 'another gang is not ready'}")
    return _stay(view, _stop_reason(verdict), f"stopping; {_what_is_safe(view, verdict)}", GangAct.STOP)


def unready(view: RequestView, group: GroupOfGang, now: datetime) -> str:
    """Why a gang could not be stopped now, as a sentence; empty where it could be, is being, or needs no stop.

    Its fellows are left out of that: each of them is looked at in the same way.
    """
    if view.phase in {_R.STOPPED, _R.ENDED}:
        return ""
    if view.phase is not _R.STOPPING:
        return f"{view.gang} is not ready"
    if view.owner.stopped_by == view.name:
        return ""
    decision = decide(view, structs.replace(group, siblings=(), forbidden=""), now)
    if GangAct.STOP in decision.acts or decision.phase is _R.ENDED:
        return ""
    return f"{view.gang}: {view.forbidden or decision.message}"


def _stop_reason(verdict: Judgement) -> str:
    return Verdict.EXPENDABLE.value if verdict.verdict is Verdict.EXPENDABLE else "Stopping"


def _what_is_safe(view: RequestView, verdict: Judgement) -> str:
    return verdict.message if verdict.verdict is Verdict.EXPENDABLE else f"acknowledged step {view.acknowledged_step}"


def _stopped(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    if not view.owner.suspended:
        return _resumed_by_others(view)
    if all(phase in OVER for phase in group.nodes):
        return _go(view, _R.RESTARTING, "Restarting", "the upgrades are over; restarting the gang")
    if group.spares and group.nodes and all(phase in SWAPPING for phase in group.nodes):
        return _go(view, _R.RESTARTING, RESTARTED_EARLY, "upgraded nodes are free; restarting the gang there at once")
    if _past(view.restart_by, now):
        return _go(
            view, _R.RESTARTING, "RestartByPassed", "the upgrades take too long; restarting the gang on other nodes"
        )
    return _stay(view, "Stopped", f"stopped at step {view.acknowledged_step}; its nodes are upgraded")


def _resumed_by_others(view: RequestView) -> GangDecision:
    return _go(view, _R.RESTARTING, "ResumedByOthers", "somebody resumed the job; it is watched until it progresses")


def _restarting(view: RequestView, now: datetime) -> GangDecision:
    if view.owner.stopped_by == view.name:
        # Also where somebody else resumed the job: our record must not outlive the request.
        return _stay(view, "Restarting", "restarting the gang", GangAct.RESUME)
    step = view.acknowledged_step if view.acknowledged_step is not None else -1
    if view.method == "none" and len(view.progress) >= view.owner.wanted:
        return _go(view, _R.RESTORED, "Restored", "every member runs again; it cannot say how far it is")
    past = [one is not None and one > step for one in view.progress]
    if past and len(past) >= view.owner.wanted and all(past):
        return _go(view, _R.RESTORED, "Restored", f"every member is past step {view.acknowledged_step}")
    if _past(view.deadline, now):
        why = f": {view.owner.queued}" if view.owner.queued else ""
        late = f"the gang was not seen past step {view.acknowledged_step} in time{why}"
        return _go(view, _R.ENDED, "NotRestored", late)
    if view.owner.queued:
        return _stay(view, "WaitingForQueue", f"ordered to run again; {view.owner.queued}")
    return _stay(view, "Restarting", f"{sum(past)} of {view.owner.wanted} member(s) past step {view.acknowledged_step}")


def _past(deadline: datetime | None, now: datetime) -> bool:
    return deadline is not None and now >= deadline
