"""Judging acknowledgements: what counts as "everybody's work is safe", and why something does not.

Times that the job tells are never judged, only the controller's own (see docs/checkpointing.md).
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.fleet import MemberFacts

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


class Judgement(Struct, frozen=True, kw_only=True):
    """A verdict, the step that is safe where it is VALID, and a sentence."""

    verdict: Verdict
    message: str
    step: int | None = None


def judge(
    *,
    members: tuple[str, ...],
    present: tuple[MemberFacts, ...],
    answers: tuple[Answer, ...],
    request_id: int,
    wanted: int,
    stop_before: datetime,
    now: datetime,
) -> Judgement:
    """Judge a whole gang.

    Args:
        members: uids of the pods that were asked.
        present: the gang's pods as they are now; succeeded ones count as done and need not answer.
        answers: at most one per member.
        request_id: the asking that must be answered.
        wanted: how many members its owner wants to run now; a part of a gang cannot speak for the whole.
        stop_before: askedAt + park-seconds on our clock, when members train on by themselves.
        now: aware, UTC.
    """
    by_uid = {answer.pod_uid: answer for answer in answers}
    alive = {member.uid: member for member in present if member.phase != "Succeeded"}
    strangers = [member.pod for uid, member in alive.items() if uid not in members]
    missing = [uid for uid in members if uid not in {member.uid for member in present}]
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
    if now >= stop_before - LAST_CALL:
        return Judgement(verdict=Verdict.EXPIRED, message="parking ends within a minute; the gang is asked again")
    faults = [fault for uid, member in alive.items() if (fault := _fault(member, by_uid.get(uid), request_id))]
    if faults:
        return min(faults, key=lambda one: one.verdict not in _DECISIVE)
    steps = {by_uid[uid].step for uid in alive}
    if len(steps) > 1:
        shown = ", ".join(f"{alive[uid].pod} {by_uid[uid].step}" for uid in sorted(alive))
        return Judgement(verdict=Verdict.UNEQUAL_STEPS, message=f"members acknowledge different steps: {shown}")
    step = steps.pop() if steps else None
    return Judgement(verdict=Verdict.VALID, message=f"{len(alive)} member(s) parked at step {step}", step=step)


_DECISIVE = frozenset({Verdict.REFUSED, Verdict.EPHEMERAL})
"""Said by one member, these decide whatever the others are still going to say."""


def _fault(member: MemberFacts, answer: Answer | None, request_id: int) -> Judgement | None:
    if answer is None:
        return Judgement(verdict=Verdict.WAITING, message=f"{member.pod} has not answered yet")
    if answer.request_id != request_id:
        return Judgement(
            verdict=Verdict.WRONG_REQUEST,
            message=f"{member.pod} answers request {answer.request_id}, asked was {request_id}; it does not count",
        )
    if answer.refused:
        return Judgement(verdict=Verdict.REFUSED, message=f"{member.pod} refuses: {answer.refused}")
    if not answer.parked:
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
