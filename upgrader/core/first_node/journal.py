"""The journal of a first hour: what was begun, and what must be put back. It is written before each phase begins."""

from enum import StrEnum

import msgspec
from msgspec import Struct

VERSION = 1


class PhaseVerdict(StrEnum):
    """The end of a phase."""

    PASSED = "passed"
    FINDINGS = "findings"  # it was completed, and found something to correct
    SKIPPED = "skipped"  # the node or the cluster has nothing to examine
    REFUSED = "refused"  # the node runs work that the phase would disturb; nothing was changed
    FAILED = "failed"
    INTERRUPTED = "interrupted"


_COMPLETED = frozenset({PhaseVerdict.PASSED, PhaseVerdict.FINDINGS, PhaseVerdict.SKIPPED})


class UndoAction(StrEnum):
    """What puts a change back. Each can be repeated, and does nothing if there is nothing to put back."""

    DELETE_POD = "delete pod"
    UNCORDON = "uncordon node"
    RESTORE_STACK = "restore stack"  # `value` has its specs before and after the change, as JSON


class PutBack(Struct, frozen=True, kw_only=True):
    """One change that may have been made: the action that reverses it, and the objects that it needs."""

    action: UndoAction
    name: str
    namespace: str = ""
    value: str = ""


class PhaseRun(Struct, frozen=True, kw_only=True):
    """A run of a phase. Without `ended_at` it was interrupted; `left` are the changes that are not put back."""

    phase: int
    started_at: str
    left: tuple[PutBack, ...] = ()
    ended_at: str = ""
    seconds: float = 0.0
    verdict: PhaseVerdict = PhaseVerdict.INTERRUPTED
    message: str = ""


class PhaseJournal(Struct, frozen=True, kw_only=True):
    """All runs of phases on one node, in order. `key` is that of the pseudonyms, in hex digits; `names` are those that
    the report hides.
    """

    node: str
    cluster: str
    key: str
    version: int = VERSION
    names: tuple[str, ...] = ()
    entries: tuple[PhaseRun, ...] = ()

    @property
    def completed(self) -> frozenset[int]:
        """Phases whose last run has ended without a failure."""
        last = {entry.phase: entry.verdict for entry in self.entries}
        return frozenset(phase for phase, verdict in last.items() if verdict in _COMPLETED)

    @property
    def left(self) -> tuple[PutBack, ...]:
        """Changes of all runs that are not put back, the last first."""
        return tuple(change for entry in reversed(self.entries) for change in reversed(entry.left))


def begin_phase(journal: PhaseJournal, phase: int, now: str) -> PhaseJournal:
    """The journal with the intent to run a phase."""
    return _with_entries(journal, (*journal.entries, PhaseRun(phase=phase, started_at=now)))


def add_change(journal: PhaseJournal, change: PutBack) -> PhaseJournal:
    """The journal with a change that is about to be made by the running phase."""
    last = journal.entries[-1]
    return _with_entries(journal, (*journal.entries[:-1], msgspec.structs.replace(last, left=(*last.left, change))))


def drop_change(journal: PhaseJournal, change: PutBack) -> PhaseJournal:
    """The journal after a change was put back."""
    return _with_entries(
        journal,
        tuple(
            msgspec.structs.replace(entry, left=tuple(other for other in entry.left if other != change))
            for entry in journal.entries
        ),
    )


def end_phase(journal: PhaseJournal, now: str, *, seconds: float, verdict: PhaseVerdict, message: str) -> PhaseJournal:
    """The journal after the end of the running phase."""
    ended = msgspec.structs.replace(
        journal.entries[-1], ended_at=now, seconds=seconds, verdict=verdict, message=message
    )
    return _with_entries(journal, (*journal.entries[:-1], ended))


def _with_entries(journal: PhaseJournal, entries: tuple[PhaseRun, ...]) -> PhaseJournal:
    return msgspec.structs.replace(journal, entries=entries)
