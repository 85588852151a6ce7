"""Validity of acknowledgements: whether the work of all members is safe, and why it is not.

Times that the job reports are never judged, only the controller's own (see docs/guides/job-authors/checkpointing.md).
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from upgrader.core import timing, untrusted
from upgrader.core.fields import Resource, Seconds, field_doc
from upgrader.core.model.fleet import MemberFacts

LAST_CALL = timedelta(seconds=60)
"""No stop is sent this close to the end of parking: a member must not train on before the stop arrives."""


class Ack(Resource, frozen=True, kw_only=True):
    """Acknowledgement or refusal of one member, by any method."""

    pod_uid: Annotated[str, field_doc("UID of the pod of the member.")]
    request_id: Annotated[int, field_doc("ID of the request that the member acknowledges or refuses.")]
    step: Annotated[int, field_doc("Last training step that the checkpoint contains.")]
    uri: Annotated[str, field_doc("Location of the checkpoint: a path in the container, or a URI.")] = ""
    parked: Annotated[bool, field_doc("Whether the member makes no further step until it is stopped or released.")] = (
        False
    )
    refused: Annotated[str, field_doc("Reason for a refusal. Empty if the member does not refuse.")] = ""
    retry_after_seconds: Annotated[
        Seconds | None, field_doc("Minimum time, in seconds, before the next request. Used only with a refusal.")
    ] = None


class SentRequest(Struct, frozen=True, kw_only=True):
    """A sent request: which members must answer, and by when. Times are the controller's, aware (UTC)."""

    members: tuple[str, ...]  # uids of the pods that were requested to checkpoint
    request_id: int
    asked_at: datetime
    stop_before: datetime  # asked_at + park-seconds, when members train on by themselves
    leader: str = ""  # uid of the member that answers for all; empty: all members answer
    max_loss_seconds: int = 0  # until that much time has passed since asked_at, members need not be parked


class AckVerdict(StrEnum):
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
    UNASKABLE = "Unaskable"  # no answer: no checkpoint method that the job declares reaches its members
    EXPENDABLE = "Expendable"  # stated by the approval, not by the answers


class Judgement(Struct, frozen=True, kw_only=True):
    """A verdict, the step that is safe if it is VALID, and a sentence."""

    verdict: AckVerdict
    message: str
    step: int | None = None
    retry_after_seconds: int | None = None  # if it is REFUSED


def judge_answers(
    asked: SentRequest,
    *,
    present: tuple[MemberFacts, ...],
    answers: tuple[Ack, ...],
    wanted: int,
    now: datetime,
) -> Judgement:
    """Judge a whole gang.

    Args:
        asked: the request that must be answered.
        present: the gang's pods as they are now; succeeded pods count as done and need not answer.
        answers: at most one per member.
        wanted: how many members its owner should run now; a part of a gang cannot acknowledge for the whole.
        now: aware, UTC.
    """
    by_uid = {answer.pod_uid: answer for answer in answers}
    alive = {member.uid: member for member in present if member.phase != "Succeeded"}
    changed = _membership_change(asked, present, alive, wanted)
    if changed is not None:
        return changed
    fresh = bool(asked.max_loss_seconds) and now <= timing.add_seconds(asked.asked_at, asked.max_loss_seconds)
    if now >= asked.stop_before - LAST_CALL and not fresh:
        return Judgement(verdict=AckVerdict.EXPIRED, message="parking ends within a minute; the request is repeated")
    speaking = {asked.leader: alive[asked.leader]} if asked.leader and alive else alive
    return _judge_members(asked, speaking, len(alive), by_uid, fresh=fresh)


def _membership_change(
    asked: SentRequest, present: tuple[MemberFacts, ...], alive: dict[str, MemberFacts], wanted: int
) -> Judgement | None:
    """Why the present pods are not the gang that the request was sent to; None if they are."""
    strangers = [member.pod for uid, member in alive.items() if uid not in asked.members]
    missing = [uid for uid in asked.members if uid not in {member.uid for member in present}]
    if strangers or missing:
        who = strangers[0] if strangers else "a member"
        return Judgement(
            verdict=AckVerdict.REPLACED,
            message=f"{who} {'was added' if strangers else 'was deleted'} after the request; the request is "
            "repeated later",
        )
    there = sum(member.phase != "Failed" for member in present)
    if there < wanted:
        return Judgement(
            verdict=AckVerdict.REPLACED, message=f"{there} of {wanted} members exist; only complete gangs get a request"
        )
    if asked.leader and alive and asked.leader not in alive:
        return Judgement(verdict=AckVerdict.REPLACED, message="the leader has ended; the request is repeated later")
    return None


def _judge_members(
    asked: SentRequest, speaking: dict[str, MemberFacts], count: int, by_uid: dict[str, Ack], *, fresh: bool
) -> Judgement:
    faults = [
        fault
        for uid, member in speaking.items()
        if (fault := _member_fault(member, by_uid.get(uid), asked, fresh=fresh))
    ]
    if faults:
        return min(faults, key=lambda fault: (fault.verdict not in _DECISIVE, -(fault.retry_after_seconds or 0)))
    steps = {by_uid[uid].step for uid in speaking}
    if len(steps) > 1:
        shown = ", ".join(f"{speaking[uid].pod} {by_uid[uid].step}" for uid in sorted(speaking))
        return Judgement(verdict=AckVerdict.UNEQUAL_STEPS, message=f"members acknowledge different steps: {shown}")
    step = steps.pop() if steps else None
    parked = all(by_uid[uid].parked for uid in speaking)
    how = (
        f"parked at step {step}"
        if parked
        else f"have saved step {step}, and may lose {asked.max_loss_seconds} s of work"
    )
    who = f", acknowledged by {speaking[asked.leader].pod}" if asked.leader and speaking else ""
    return Judgement(verdict=AckVerdict.VALID, message=f"{count} member(s) {how}{who}", step=step)


_DECISIVE = frozenset({AckVerdict.REFUSED, AckVerdict.EPHEMERAL})
"""Verdicts on one member that decide for the gang, whatever the other members answer later."""


def _member_fault(member: MemberFacts, answer: Ack | None, asked: SentRequest, *, fresh: bool) -> Judgement | None:
    if answer is None:
        return Judgement(verdict=AckVerdict.WAITING, message=f"{member.pod} has not answered yet")
    if answer.request_id != asked.request_id:
        return Judgement(
            verdict=AckVerdict.WRONG_REQUEST,
            message=f"{member.pod} acknowledges request {answer.request_id} instead of "
            f"{asked.request_id}; the acknowledgement is ignored",
        )
    if answer.refused:
        return Judgement(
            verdict=AckVerdict.REFUSED,
            message=f"{member.pod} refuses: {answer.refused}",
            retry_after_seconds=answer.retry_after_seconds,
        )
    if not answer.parked and asked.max_loss_seconds and not fresh:
        return Judgement(
            verdict=AckVerdict.EXPIRED,
            message=f"{member.pod} continues to train and would lose more than {asked.max_loss_seconds} s of work; "
            "the request is repeated",
        )
    if not answer.parked and not fresh:
        return Judgement(
            verdict=AckVerdict.NOT_PARKED,
            message=f"{member.pod} continues to train after its checkpoint; only acknowledgements of parked members "
            "count",
        )
    if is_ephemeral(answer.uri, member):
        return Judgement(
            verdict=AckVerdict.EPHEMERAL,
            message=f"{member.pod} stores its checkpoint at {answer.uri}, which is deleted with the pod; use another "
            "volume",
        )
    return None


def is_earlier_request(asked: str, request_id: int) -> bool:
    """Whether `asked`, the request id on a member (empty: none), is lower than `request_id`."""
    last = untrusted.parse_whole(asked)
    return last is None or last < request_id


def is_ephemeral(uri: str, member: MemberFacts) -> bool:
    """Whether a checkpoint at `uri` is deleted with the pod.

    A path is safe only under a mounted volume that outlives the pod; a URI of another scheme than file: is taken as
    remote. Any other value (empty, relative, or outside of a volume by `..`) is not known to be safe.
    """
    scheme, sep, rest = uri.partition("://")
    if sep and scheme != "file":
        return not scheme
    path = rest if sep else uri
    if ".." in path.split("/"):
        return True
    longest = max(
        (p for p in (*member.ephemeral_paths, *member.volume_paths) if _is_under(path, p)), key=len, default=""
    )
    return longest not in member.volume_paths


def _is_under(path: str, parent: str) -> bool:
    return bool(parent) and (path == parent or path.startswith(parent.rstrip("/") + "/"))
