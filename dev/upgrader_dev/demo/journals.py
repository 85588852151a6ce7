"""Summaries of the trainers' logs: steps done, steps lost, and how often and how long a job did not train. Pure.

One member writes a journal (see Containerfiles/trainer/journal.py) on a volume that outlives its pods: a line per step
and per event, so the measurements do not depend on reports of the upgrader.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class JournalLine(Struct, frozen=True):
    """A line of a journal; `time` in seconds since 1970, by the clock of the member's node."""

    time: float
    event: str
    step: int
    member: int
    pod: str = ""
    node: str = ""


class MemberHistory(Struct, frozen=True, kw_only=True):
    """The history of one member."""

    member: int
    steps_done: int
    interruptions: int  # processes of this member after its first
    resumed_from: int | None  # step that its last process resumed from; None if it was never interrupted
    steps_lost: int  # the most steps that an interruption lost
    seconds_not_running: float  # from the last step before an interruption to the first one after it, summed up
    refusals: int  # requests that it refused
    finished: bool  # its last process ran to the end
    pods: tuple[str, ...]
    nodes: tuple[str, ...]


class JobHistory(Struct, frozen=True, kw_only=True):
    """The history of a job: the values of its worst member."""

    members: tuple[MemberHistory, ...]

    @property
    def steps_done(self) -> int:
        """Steps that every member has done."""
        return min((member.steps_done for member in self.members), default=0)

    @property
    def steps_lost(self) -> int:
        """The largest loss of any member."""
        return max((member.steps_lost for member in self.members), default=0)

    @property
    def interruptions(self) -> int:
        """The most interruptions of any member."""
        return max((member.interruptions for member in self.members), default=0)

    @property
    def resumed_from(self) -> int | None:
        """The lowest step that a member resumed from."""
        return min((member.resumed_from for member in self.members if member.resumed_from is not None), default=None)

    @property
    def refusals(self) -> int:
        """The most refusals of any member."""
        return max((member.refusals for member in self.members), default=0)

    @property
    def finished(self) -> bool:
        """Whether every member ran to its end."""
        return bool(self.members) and all(member.finished for member in self.members)

    @property
    def seconds_not_running(self) -> float:
        """The longest time that a member did not train."""
        return max((member.seconds_not_running for member in self.members), default=0.0)


def read_job(folder: Path) -> JobHistory:
    """The journals of a job, one per member.

    Raises:
        msgspec.DecodeError: a line is malformed (an incomplete last line is skipped).
    """
    return JobHistory(
        members=tuple(
            summarize_journal(parse_lines(path.read_bytes())) for path in sorted(folder.glob("member-*.jsonl"))
        )
    )


def parse_lines(text: bytes) -> list[JournalLine]:
    """The complete lines of a journal."""
    return [msgspec.json.decode(line, type=JournalLine) for line in text.split(b"\n")[:-1]]


def summarize_journal(journal: Sequence[JournalLine]) -> MemberHistory:
    """The history in a member's journal."""
    lost, resumed, paused = 0, None, 0.0
    last_step: JournalLine | None = None
    is_resuming = False
    starts = sum(line.event == "start" for line in journal)
    for line in journal:
        if line.event == "resume" and last_step is not None:
            lost, resumed, is_resuming = max(lost, last_step.step - line.step), line.step, True
        elif line.event == "step":
            if is_resuming and last_step is not None:
                paused, is_resuming = paused + line.time - last_step.time, False
            last_step = line
    return MemberHistory(
        member=journal[0].member if journal else 0,
        steps_done=last_step.step if last_step is not None else 0,
        interruptions=max(0, starts - 1),
        resumed_from=resumed,
        steps_lost=lost,
        seconds_not_running=round(paused, 1),
        refusals=sum(line.event == "refuse" for line in journal),
        finished=bool(journal) and journal[-1].event == "done",
        pods=_unique_values(line.pod for line in journal),
        nodes=_unique_values(line.node for line in journal),
    )


def _unique_values(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))
