"""What the trainers' own logs say: steps done, steps lost, how often and how long a job did not train. Pure.

A journal is written by one member (see Containerfiles/trainer/journal.py) on a volume that survives its pods: a line
per step and per event, so nothing here depends on what the upgrader says of itself.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class Line(Struct, frozen=True):
    """A line of a journal; `time` in seconds since 1970, by the clock of the member's node."""

    time: float
    event: str
    step: int
    member: int
    pod: str = ""
    node: str = ""


class MemberStory(Struct, frozen=True, kw_only=True):
    """What happened to one member."""

    member: int
    steps_done: int
    interruptions: int  # processes of this member after its first
    resumed_from: int | None  # step that its last process went on from; None where it was never interrupted
    steps_lost: int  # the most steps that any interruption threw away
    seconds_not_running: float  # from the last step before an interruption to the first one after it, all added
    refusals: int  # requests that it answered with "not now"
    finished: bool  # its last process ran to the end
    pods: tuple[str, ...]
    nodes: tuple[str, ...]


class JobStory(Struct, frozen=True, kw_only=True):
    """What happened to a job: its worst member counts."""

    members: tuple[MemberStory, ...]

    @property
    def steps_done(self) -> int:
        """Steps that every member has done."""
        return min((one.steps_done for one in self.members), default=0)

    @property
    def steps_lost(self) -> int:
        """The largest loss of any member."""
        return max((one.steps_lost for one in self.members), default=0)

    @property
    def interruptions(self) -> int:
        """The most interruptions of any member."""
        return max((one.interruptions for one in self.members), default=0)

    @property
    def resumed_from(self) -> int | None:
        """The lowest step that a member went on from."""
        return min((one.resumed_from for one in self.members if one.resumed_from is not None), default=None)

    @property
    def refusals(self) -> int:
        """The most refusals of any member."""
        return max((one.refusals for one in self.members), default=0)

    @property
    def finished(self) -> bool:
        """Whether every member ran to its end."""
        return bool(self.members) and all(one.finished for one in self.members)

    @property
    def seconds_not_running(self) -> float:
        """The longest that a member did not train."""
        return max((one.seconds_not_running for one in self.members), default=0.0)


def read_job(folder: Path) -> JobStory:
    """The journals of a job, one per member.

    Raises:
        msgspec.DecodeError: a line that is no journal line (a half-written last line is left out).
    """
    return JobStory(
        members=tuple(member_story(parse_lines(path.read_bytes())) for path in sorted(folder.glob("member-*.jsonl")))
    )


def parse_lines(text: bytes) -> list[Line]:
    """The whole lines of a journal."""
    return [msgspec.json.decode(one, type=Line) for one in text.split(b"\n")[:-1]]


def member_story(journal: Sequence[Line]) -> MemberStory:
    """One member's journal, told."""
    lost, resumed, silent = 0, None, 0.0
    last: Line | None = None
    waiting = False
    starts = sum(one.event == "start" for one in journal)
    for one in journal:
        if one.event == "resume" and last is not None:
            lost, resumed, waiting = max(lost, last.step - one.step), one.step, True
        elif one.event == "step":
            if waiting and last is not None:
                silent, waiting = silent + one.time - last.time, False
            last = one
    return MemberStory(
        member=journal[0].member if journal else 0,
        steps_done=last.step if last is not None else 0,
        interruptions=max(0, starts - 1),
        resumed_from=resumed,
        steps_lost=lost,
        seconds_not_running=round(silent, 1),
        refusals=sum(one.event == "refuse" for one in journal),
        finished=bool(journal) and journal[-1].event == "done",
        pods=_unique_values(one.pod for one in journal),
        nodes=_unique_values(one.node for one in journal),
    )


def _unique_values(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))
