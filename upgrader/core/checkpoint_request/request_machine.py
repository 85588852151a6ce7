"""The state machine of a CheckpointRequest: pure, from a view of one gang to a decision with its reason.

This module keeps law 1: STOP is decided only on a judgement of pods listed right before, and the other gangs of the
group are stopped with the gang or withdrawn with it.
"""

from datetime import datetime, timedelta

from msgspec import structs

from upgrader.core.checkpoint_request.acknowledgements import (
    LAST_CALL,
    AckVerdict,
    Judgement,
    SentRequest,
    is_earlier_request,
    judge_answers,
)
from upgrader.core.checkpoint_request.delivery_failures import describe_ruled_out, is_too_soon
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, GroupOfGang, RequestView
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final

_R, _N = RequestPhase, NodePhase
OVER = frozenset({_N.RELEASING, _N.SUCCEEDED, _N.FAILED, _N.NODE_DELETED})
SWAPPING = frozenset({_N.UNLOADING, _N.UPGRADING, _N.LOADING, _N.VALIDATING})
"""Phases in which a node does not need its gang: the gang may run elsewhere while the upgrade continues."""

RESTARTED_EARLY = "RestartedEarly"
LEFT_OUT = "NodesLeftOut"
"""Reason of a gang that did not acknowledge in time and declares on-deadline: skip-node."""

OUTGROWN = "GroupOutgrown"
"""Reason of a gang that is larger, right before its stop, than its batch counts."""

_UNSTOPPED = frozenset({_R.REQUESTED, _R.PARKED, _R.EXPIRED})


def decide(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    """The next step of one request. Never raises; it waits in doubt."""
    if is_final(view.phase):
        return _stay_finished(view)
    ended = _end_with_owner(view)
    if ended is not None:
        return ended
    if view.phase in _UNSTOPPED:
        withdrawal = _withdraw_group(view, group, now)
        if withdrawal is not None:
            return withdrawal
    match view.phase:
        case _R.REQUESTED:
            return _decide_requested(view, group, now)
        case _R.PARKED:
            return _decide_parked(view, group, now)
        case _R.EXPIRED:
            return _decide_expired(view, group)
        case _R.STOPPING:
            return _decide_stopping(view, group, now)
        case _R.STOPPED:
            return _decide_stopped(view, group, now)
        case _R.RESTARTING:
            return _decide_restarting(view, now)
        case _R.RESTORED | _R.WITHDRAWN | _R.ENDED:
            return _stay_finished(view)


def judge_gang(view: RequestView, now: datetime) -> Judgement:
    """What the gang's answers amount to now."""
    asked = SentRequest(
        members=view.members,
        request_id=view.request_id,
        asked_at=view.asked_since,
        stop_before=view.stop_before,
        leader=view.leader,
        max_loss_seconds=view.max_loss_seconds,
    )
    return judge_answers(asked, present=view.present, answers=view.answers, wanted=view.owner.wanted, now=now)


def judgement_or_approval(view: RequestView, group: GroupOfGang, now: datetime) -> Judgement:
    """The answers, or in their place the approval: the one exception of law 1.

    A gang that the approval names expendable is still requested to checkpoint; it may be stopped if it refuses, or does
    not answer for as long as one checkpoint may take. After an acknowledgement it is treated like any other gang.
    """
    answers = judge_gang(view, now)
    answered = answers.verdict in {AckVerdict.VALID, AckVerdict.REPLACED} or view.acknowledged_step is not None
    in_vain = "" if answered or view.fallbacks else describe_ruled_out(view.misses)
    if in_vain and answers.verdict not in _NO:
        answers = Judgement(verdict=AckVerdict.UNASKABLE, message=in_vain)
    if answered or view.gang not in group.expendable:
        return answers
    if view.method == "none" or answers.verdict in _NO or now >= view.turn_over:
        return Judgement(verdict=AckVerdict.EXPENDABLE, message=f"named expendable by the approval ({answers.message})")
    return answers


_NO = frozenset({AckVerdict.REFUSED, AckVerdict.EPHEMERAL, AckVerdict.UNASKABLE})
_SAFE = frozenset({AckVerdict.VALID, AckVerdict.EXPENDABLE})


def _keep_phase(view: RequestView, reason: str, message: str, *acts: GangAct) -> GangDecision:
    return GangDecision(phase=view.phase, reason=reason, message=message, acts=acts, step=view.acknowledged_step)


def _go_to(view: RequestView, phase: RequestPhase, reason: str, message: str, *acts: GangAct) -> GangDecision:
    return GangDecision(phase=phase, reason=reason, message=message, acts=acts, step=view.acknowledged_step)


def _stay_finished(view: RequestView) -> GangDecision:
    return _keep_phase(view, "", "")


def _end_with_owner(view: RequestView) -> GangDecision | None:
    """The end of a request whose gang was deleted, finished or suspended: there is nothing to stop or restart."""
    if not view.owner.present:
        return _go_to(view, _R.ENDED, "Deleted", "the job was deleted")
    if view.owner.finished:
        # A job may finish while it is being stopped; the stop annotation must not outlive the request.
        acts = (GangAct.RESUME,) if view.owner.stopped_by == view.name else ()
        return _go_to(view, _R.ENDED, "Finished", "the job ended", *acts)
    by_others = view.owner.suspended and view.owner.stopped_by != view.name
    if by_others and view.phase is not _R.RESTARTING:
        acts = (GangAct.WITHDRAW,) if view.phase in _UNSTOPPED else ()
        return _go_to(
            view,
            _R.ENDED,
            "SuspendedByOthers",
            "another user or controller suspended the job and must resume it",
            *acts,
        )
    return None


def _withdraw_group(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision | None:
    if group.undo:
        return _go_to(view, _R.WITHDRAWN, "Aborted", "the plan was aborted; the gang continues", GangAct.WITHDRAW)
    if not group.nodes or any(phase in OVER for phase in group.nodes):
        return _go_to(
            view, _R.WITHDRAWN, "GroupReleased", "the upgrade group was released; the gang continues", GangAct.WITHDRAW
        )
    if _R.WITHDRAWN in group.siblings:
        return _go_to(
            view,
            _R.WITHDRAWN,
            "FellowNotAcknowledged",
            "another gang on the same nodes did not acknowledge; this gang continues",
            GangAct.WITHDRAW,
        )
    if _is_past(group.ask_until, now) or _is_past(view.deadline, now):
        return _withdraw_late(view, group, _last_judgement(view, now))
    return None


def _last_judgement(view: RequestView, now: datetime) -> Judgement:
    """The judgement while answers still counted: the end of parking does not explain a missing answer."""
    return judge_gang(view, min(now, view.stop_before - LAST_CALL - timedelta(seconds=1)))


def _withdraw_late(view: RequestView, group: GroupOfGang, verdict: Judgement) -> GangDecision:
    unaskable = verdict.verdict is AckVerdict.UNASKABLE
    late = "no acknowledgement of the whole upgrade group in time"
    what = "no checkpoint method reaches the gang" if unaskable else late
    sentence = f"{what} ({verdict.message}); the gang continues"
    if verdict.verdict is AckVerdict.VALID:
        return _go_to(view, _R.WITHDRAWN, "NotAcknowledged", sentence, GangAct.WITHDRAW)
    if view.on_deadline == "skip-node":
        sentence += "; the plan skips its nodes (on-deadline: skip-node)"
        return _go_to(view, _R.WITHDRAWN, LEFT_OUT, sentence, GangAct.WITHDRAW)
    if view.on_deadline == "terminate" and view.gang not in group.expendable:
        sentence += "; on-deadline: terminate applies only if the approval names the gang expendable"
    return _go_to(view, _R.WITHDRAWN, verdict.verdict, sentence, GangAct.WITHDRAW)


def _decide_requested(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    verdict = judgement_or_approval(view, group, now)
    match verdict.verdict:
        case AckVerdict.VALID | AckVerdict.EXPENDABLE:
            return GangDecision(phase=_R.PARKED, reason=verdict.verdict, message=verdict.message, step=verdict.step)
        case AckVerdict.REPLACED | AckVerdict.REFUSED | AckVerdict.EPHEMERAL:
            return structs.replace(
                _go_to(view, _R.WITHDRAWN, verdict.verdict, verdict.message, GangAct.WITHDRAW),
                retry_after_seconds=verdict.retry_after_seconds,
            )
        case AckVerdict.UNASKABLE:
            return _withdraw_late(view, group, verdict)
        case AckVerdict.EXPIRED:
            return _go_to(view, _R.EXPIRED, verdict.verdict, verdict.message)
        case AckVerdict.WAITING | AckVerdict.WRONG_REQUEST | AckVerdict.UNEQUAL_STEPS | AckVerdict.NOT_PARKED:
            return _wait_for_answers(view, group, verdict, now)


def _wait_for_answers(view: RequestView, group: GroupOfGang, verdict: Judgement, now: datetime) -> GangDecision:
    in_vain = describe_ruled_out(view.misses)
    if in_vain:
        following = view.fallbacks[0]
        message = f"{in_vain}; the request to all members is repeated by {following} instead"
        return structs.replace(_keep_phase(view, "NextMethod", message, GangAct.WITHDRAW), method=following)
    if group.turns is not None and view.admitted_at is None:
        if view.name not in group.turns:
            lane = f"lane {view.lane}" if view.lane else "the unnamed lane"
            return _keep_phase(
                view, "WaitingForLane", f"other gangs write checkpoints to {lane}; the request waits for them"
            )
        return structs.replace(_keep_phase(view, "LaneFree", "the lane is free"), admitted=True)
    # A member with a higher request id is left to that request: ids grow, and two requests must not alternate.
    unasked = [
        pod for pod in view.present if pod.uid in view.members and is_earlier_request(pod.request, view.request_id)
    ]
    if not any(pod.phase != "Succeeded" for pod in unasked):
        return _keep_phase(view, verdict.verdict, verdict.message)
    if is_too_soon(view.misses, now):
        return _keep_phase(view, "Unheard", "")
    return _keep_phase(view, verdict.verdict, verdict.message, GangAct.REQUEST)


def _decide_parked(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    verdict = judgement_or_approval(view, group, now)
    if verdict.verdict is AckVerdict.EXPIRED:
        return _go_to(view, _R.EXPIRED, verdict.verdict, verdict.message)
    if verdict.verdict not in _SAFE:
        return _go_to(view, _R.WITHDRAWN, verdict.verdict, verdict.message, GangAct.WITHDRAW)
    draining = bool(group.nodes) and all(phase is _N.DRAINING for phase in group.nodes)
    if not draining:
        return _keep_phase(view, verdict.verdict, verdict.message)
    if any(phase in {_R.REQUESTED, _R.EXPIRED} for phase in group.siblings):
        return _keep_phase(view, "WaitingForFellows", "another gang of the upgrade group has not acknowledged yet")
    if group.pods_left:
        # If they stay, the upgrade does not start, and this stop would be the gang's only one.
        return _keep_phase(view, "WaitingForPods", f"not stopped yet: {group.pods_left}")
    return _go_to(view, _R.STOPPING, _stop_reason(verdict), f"{_what_is_safe(view, verdict)}; stopping the whole gang")


def _decide_expired(view: RequestView, group: GroupOfGang) -> GangDecision:
    if any(phase in {_N.TAINTING, _N.DRAINING} for phase in group.nodes):
        return _go_to(
            view, _R.WITHDRAWN, AckVerdict.EXPIRED, "parking ended before the upgrade group was ready", GangAct.WITHDRAW
        )
    return GangDecision(
        phase=_R.REQUESTED, reason="AskedAgain", message="the request is repeated with a higher ID", new_id=True
    )


def _decide_stopping(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    if view.owner.stopped_by != view.name:
        return _stop_now(view, group, now)
    if view.owner.ordered and not view.owner.suspended:
        return _decide_ordered(view, group, now)
    if not view.owner.suspended:
        return _restart_after_resume(view)
    left = [pod for pod in view.present if pod.phase not in {"Succeeded", "Failed"}]
    if not view.owner.unconfirmed and not left and view.owner.active == 0:
        return _go_to(view, _R.STOPPED, "Stopped", f"stopped at step {view.acknowledged_step}")
    if group.undo or all(phase in OVER for phase in group.nodes) or _is_past(view.deadline, now):
        return _go_to(
            view, _R.RESTARTING, "StopUndone", "the upgrade group was released while the gang stopped; restarting it"
        )
    count = len(left) or view.owner.active
    what = f"{count} pod(s) to end" if count else "its controller to confirm the stop"
    return _keep_phase(view, "Stopping", f"waiting for {what}")


def _decide_ordered(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    """A recorded stop whose order may be lost: repeated while the acknowledgement is valid, else undone."""
    if group.undo or all(phase in OVER for phase in group.nodes) or _is_past(view.deadline, now):
        return _go_to(view, _R.RESTARTING, "StopUndone", "the upgrade group was released before the gang stopped")
    verdict = judgement_or_approval(view, group, now)
    if verdict.verdict is AckVerdict.WAITING or (verdict.verdict in _SAFE and view.forbidden):
        return _keep_phase(view, "Stopping", f"the stop is not repeated yet: {view.forbidden or verdict.message}")
    if verdict.verdict not in _SAFE:
        return _go_to(view, _R.RESTARTING, "StopUndone", f"not stopped: {verdict.message}")
    return _keep_phase(view, "Stopping", "stop requested; waiting for its controller", GangAct.STOP)


def _stop_now(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    """A stop that is decided but not in the owner: judged once more, from pods listed for this step."""
    back = (GangAct.WITHDRAW, GangAct.FENCE)
    if group.undo or any(phase in OVER for phase in group.nodes):
        return _go_to(view, _R.WITHDRAWN, "GroupReleased", "the upgrade group was released before the stop", *back)
    if _R.WITHDRAWN in group.siblings:
        # Its nodes are about to be released: this stop would be the gang's only one, and without use.
        return _go_to(
            view,
            _R.WITHDRAWN,
            "FellowNotAcknowledged",
            "the request to another gang on the same nodes was withdrawn",
            *back,
        )
    if group.grown:
        return _go_to(view, _R.WITHDRAWN, OUTGROWN, f"not stopped: {group.grown}", *back)
    if _is_past(view.deadline, now):
        why = view.forbidden or "the stop did not succeed in time"
        return _go_to(view, _R.WITHDRAWN, "NotStopped", f"{why}; the gang continues", *back)
    verdict = judgement_or_approval(view, group, now)
    if verdict.verdict is AckVerdict.WAITING:
        # An earlier answer is not readable now: the stop waits, until parking ends.
        return _keep_phase(view, verdict.verdict, f"not stopped yet: {verdict.message}")
    if verdict.verdict not in _SAFE:
        why = f"{view.forbidden}; meanwhile {verdict.message}" if view.forbidden else verdict.message
        return _go_to(view, _R.WITHDRAWN, verdict.verdict, f"not stopped: {why}", *back)
    if view.forbidden:
        return _keep_phase(view, "DisruptionForbidden", f"not stopped yet: {view.forbidden}")
    if group.pods_left:
        return _keep_phase(view, "WaitingForPods", f"not stopped yet: {group.pods_left}")
    if group.forbidden or _R.PARKED in group.siblings:
        # All or none: if another gang cannot be stopped, no upgrade starts, and this stop would be the gang's only one.
        return _keep_phase(
            view,
            "WaitingForFellows",
            f"not stopped yet: {group.forbidden or 'another gang is not ready to be stopped'}",
        )
    return _keep_phase(view, _stop_reason(verdict), f"stopping; {_what_is_safe(view, verdict)}", GangAct.STOP)


def explain_unready(view: RequestView, group: GroupOfGang, now: datetime) -> str:
    """Why a gang could not be stopped now, as a sentence; empty if it could be, is being stopped, or needs no stop.

    The other gangs of the group are left out: each of them is judged in the same way.
    """
    if view.phase in {_R.STOPPED, _R.ENDED}:
        return ""
    if view.phase is not _R.STOPPING:
        return f"{view.gang} is not ready to be stopped"
    if view.owner.stopped_by == view.name:
        return ""
    decision = decide(view, structs.replace(group, siblings=(), forbidden=""), now)
    if GangAct.STOP in decision.acts or decision.phase is _R.ENDED:
        return ""
    return f"{view.gang}: {view.forbidden or decision.message}"


def _stop_reason(verdict: Judgement) -> str:
    return AckVerdict.EXPENDABLE.value if verdict.verdict is AckVerdict.EXPENDABLE else "Stopping"


def _what_is_safe(view: RequestView, verdict: Judgement) -> str:
    return (
        verdict.message if verdict.verdict is AckVerdict.EXPENDABLE else f"acknowledged step {view.acknowledged_step}"
    )


def _decide_stopped(view: RequestView, group: GroupOfGang, now: datetime) -> GangDecision:
    if not view.owner.suspended:
        return _restart_after_resume(view)
    if all(phase in OVER for phase in group.nodes):
        return _go_to(view, _R.RESTARTING, "Restarting", "the upgrades have ended; restarting the gang")
    if group.spares and group.nodes and all(phase in SWAPPING for phase in group.nodes):
        return _go_to(view, _R.RESTARTING, RESTARTED_EARLY, "upgraded nodes are free; restarting the gang there")
    if _is_past(view.restart_by, now):
        return _go_to(
            view, _R.RESTARTING, "RestartByPassed", "the upgrades take too long; restarting the gang on other nodes"
        )
    return _keep_phase(view, "Stopped", f"stopped at step {view.acknowledged_step}; its nodes are upgraded")


def _restart_after_resume(view: RequestView) -> GangDecision:
    return _go_to(
        view, _R.RESTARTING, "ResumedByOthers", "another user or controller resumed the job; waiting for its progress"
    )


def _decide_restarting(view: RequestView, now: datetime) -> GangDecision:
    if view.owner.stopped_by == view.name:
        # Also after a resume by others: the stop annotation must not outlive the request.
        return _keep_phase(view, "Restarting", "restarting the gang", GangAct.RESUME)
    step = view.acknowledged_step if view.acknowledged_step is not None else -1
    if view.method == "none" and len(view.progress) >= view.owner.wanted:
        return _go_to(
            view, _R.RESTORED, "Restored", "every member runs again; its checkpoint method reports no progress"
        )
    past = [latest is not None and latest > step for latest in view.progress]
    if past and len(past) >= view.owner.wanted and all(past):
        return _go_to(view, _R.RESTORED, "Restored", f"every member is past step {view.acknowledged_step}")
    if _is_past(view.deadline, now):
        why = f": {view.owner.queued}" if view.owner.queued else ""
        late = f"the gang did not pass step {view.acknowledged_step} in time{why}"
        return _go_to(view, _R.ENDED, "NotRestored", late)
    if view.owner.queued:
        return _keep_phase(view, "WaitingForQueue", f"resumed; {view.owner.queued}")
    return _keep_phase(
        view, "Restarting", f"{sum(past)} of {view.owner.wanted} member(s) past step {view.acknowledged_step}"
    )


def _is_past(deadline: datetime | None, now: datetime) -> bool:
    return deadline is not None and now >= deadline
