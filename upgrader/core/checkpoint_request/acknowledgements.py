"""Judging acknowledgements: what counts as "everybody's work is safe", and why something does not.

Times that the job tells are never judged, only the controller's own (see docs/checkpointing.md).
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core import timing, untrusted
from upgrader.core.model.fleet import MemberFacts

LAST_CALL = timedelta(seconds=60)
"""No stop is sent this close to the end of parking: a member must not train on while the stop is on its way."""


class Answer(Struct, frozen=True, kw_only=True):
    """One member's answer, whichever way it came."""

    pod_uid: str
    request_id: int
    step: int
    uri: str = ""
    parked: bool = False
    refused: str = ""
    retry_after_seconds: int | None = None  # with a refusal: how long it wants to be left alone


class Asked(Struct, frozen=True, kw_only=True):
    """An asking: who must answer what by when. Times are ours, aware (UTC)."""

    members: tuple[str, ...]  # uids of the pods that were asked
    request_id: int
    asked_at: datetime
    stop_before: datetime  # asked_at + park-seconds, when members train on by themselves
    leader: str = ""  # uid of the member that answers for all; empty: everybody answers
    max_loss_seconds: int = 0  # while no more has passed since asked_at, acknowledgements count that are not parked


class Verdict(StrEnum):
    """What the answers of a gang amount to."""

    VALID = "Acknowledged"
    WAITING = "WaitingForAnswers"
    REFUSED = "Refused"
    WRONG_REQUEST = "AnsweredAnotherRequest"
    UNEQUAL_STEPS = "UnequalSteps"
    NOT_PARKED = "NotParked"
    REPLACED = "MembersChanged"
    EPHEMERAL = "AckOnEphemeralStorage"
    EXPIRED = "ParkingExpires"
    UNASKABLE = "Unaskable"  # said by nobody: members could not be asked in any way that their job declares
    EXPENDABLE = "Expendable"  # said by the approval, not by the answers


class Judgement(Struct, frozen=True, kw_only=True):
    """A verdict, the step that is safe where it is VALID, and a sentence."""

    verdict: Verdict
    message: str
    step: int | None = None
    retry_after_seconds: int | None = None  # where it is REFUSED


def judge(
    asked: Asked,
    *,
    present: tuple[MemberFacts, ...],
    answers: tuple[Answer, ...],
    wanted: int,
    now: datetime,
) -> Judgement:
    """Judge a whole gang.

    Args:
        asked: the asking that must be answered.
        present: the gang's pods as they are now; succeeded ones count as done and need not answer.
        answers: at most one per member.
        wanted: how many members its owner wants to run now; a part of a gang cannot speak for the whole.
        now: aware, UTC.
    """
    by_uid = {answer.pod_uid: answer for answer in answers}
    alive = {member.uid: member for member in present if member.phase != "Succeeded"}
    changed = _changed(asked, present, alive, wanted)
    if changed is not None:
        return changed
    fresh = bool(asked.max_loss_seconds) and now <= timing.after(asked.asked_at, asked.max_loss_seconds)
    if now >= asked.stop_before - LAST_CALL and not fresh:
        return Judgement(verdict=Verdict.EXPIRED, message="parking ends within a minute; the gang is asked again")
    speaking = {asked.leader: alive[asked.leader]} if asked.leader and alive else alive
    return _heard(asked, speaking, len(alive), by_uid, fresh=fresh)


def _changed(
    asked: Asked, present: tuple[MemberFacts, ...], alive: dict[str, MemberFacts], wanted: int
) -> Judgement | None:
    """Why those who are there are not the gang that was asked; None: they are."""
    strangers = [member.pod for uid, member in alive.items() if uid not in asked.members]
    missing = [uid for uid in asked.members if uid not in {member.uid for member in present}]
    if strangers or missing:
        who = strangers[0] if strangers else "a member"
        return Judgement(
            verdict=Verdict.REPLACED,
            message=f"{who} {'joined' if strangers else 'is gone'} since the gang was asked; asked again later",
        )
    there = sum(member.phase != "Failed" for member in present)
    if there < wanted:
        return Judgement(
            verdict=Verdict.REPLACED, message=f"{there} of {wanted} members are there; only complete gangs are asked"
        )
    if asked.leader and alive and asked.leader not in alive:
        return Judgement(
            verdict=Verdict.REPLACED, message="the member that answers for all has ended; asked again later"
        )
    return None


def _heard(
    asked: Asked, speaking: dict[str, MemberFacts], count: int, by_uid: dict[str, Answer], *, fresh: bool
) -> Judgement:
    faults = [
        fault for uid, member in speaking.items() if (fault := _fault(member, by_uid.get(uid), asked, fresh=fresh))
    ]
    if faults:
        return min(faults, key=lambda one: (one.verdict not in _DECISIVE, -(one.retry_after_seconds or 0)))
    steps = {by_uid[uid].step for uid in speaking}
    if len(steps) > 1:
        shown = ", ".join(f"{speaking[uid].pod} {by_uid[uid].step}" for uid in sorted(speaking))
        return Judgement(verdict=Verdict.UNEQUAL_STEPS, message=f"members acknowledge different steps: {shown}")
    step = steps.pop() if steps else None
    parked = all(by_uid[uid].parked for uid in speaking)
    how = f"parked at step {step}" if parked else f"hold step {step}, and may lose {asked.max_loss_seconds} s of work"
    who = f", by the word of {speaking[asked.leader].pod}" if asked.leader and speaking else ""
    return Judgement(verdict=Verdict.VALID, message=f"{count} member(s) {how}{who}", step=step)


_DECISIVE = frozenset({Verdict.REFUSED, Verdict.EPHEMERAL})
"""Said by one member, these decide whatever the others are still going to say."""


def _fault(member: MemberFacts, answer: Answer | None, asked: Asked, *, fresh: bool) -> Judgement | None:
    if answer is None:
        return Judgement(verdict=Verdict.WAITING, message=f"{member.pod} has not answered yet")
    if answer.request_id != asked.request_id:
        return Judgement(
            verdict=Verdict.WRONG_REQUEST,
            message=f"{member.pod} answers request {answer.request_id}, asked was {asked.request_id}; "
            "it does not count",
        )
    if answer.refused:
        return Judgement(
            verdict=Verdict.REFUSED,
            message=f"{member.pod} refuses: {answer.refused}",
            retry_after_seconds=answer.retry_after_seconds,
        )
    if not answer.parked and asked.max_loss_seconds and not fresh:
        return Judgement(
            verdict=Verdict.EXPIRED,
            message=f"{member.pod} trains on, and would lose more than {asked.max_loss_seconds} s of work; asked again",
        )
    if not answer.parked and not fresh:
        return Judgement(
            verdict=Verdict.NOT_PARKED,
            message=f"{member.pod} trains on after its checkpoint; only parked acknowledgements count",
        )
    if ephemeral(answer.uri, member):
        return Judgement(
            verdict=Verdict.EPHEMERAL,
            message=f"{member.pod} keeps its checkpoint at {answer.uri}, which dies with the pod; use another volume",
        )
    return None


def earlier(asked: str, request_id: int) -> bool:
    """Whether a member was asked, if at all, under a lower id; `asked` is what it carries, empty where it was not."""
    last = untrusted.whole(asked)
    return last is None or last < request_id


def ephemeral(uri: str, member: MemberFacts) -> bool:
    """Whether a checkpoint at `uri` dies with the pod.

    A path is safe only under a mounted volume that outlives the pod; a URI of another scheme than file: is taken as
    remote. What is neither (empty, relative, or climbing out of a volume by `..`) is not known to be safe.
    """
    scheme, sep, rest = uri.partition("://")
    if sep and scheme != "file":
        return not scheme
    path = rest if sep else uri
    if ".." in path.split("/"):
        return True
    longest = max((p for p in (*member.ephemeral_paths, *member.volume_paths) if _under(path, p)), key=len, default="")
    return longest not in member.volume_paths


def _under(path: str, parent: str) -> bool:
    return bool(parent) and (path == parent or path.startswith(parent.rstrip("/") + "/"))
