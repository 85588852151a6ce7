"""The judge: all laws check every change, and the final state."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader_dev.chaos.laws.cluster_state import ClusterState, Files, Mailbox, Violation
from upgrader_dev.chaos.laws.journal import JournalEntry
from upgrader_dev.chaos.laws.laws_of_gangs import GangsRestarted, StoppedOnce, UnacknowledgedStop, UselessStop
from upgrader_dev.chaos.laws.laws_of_nodes import (
    BudgetKept,
    ForeignSettingsKept,
    ImagesPrepared,
    NewControllerChangesNothing,
    SingleUpgrade,
)
from upgrader_dev.chaos.laws.laws_of_records import EveryStateEnds, IntentFirst, NoStartOnStaleState
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore

JUDGE_SECONDS = 60


class Law(Protocol):
    """A law, which checks change by change. `state` is the cluster before the change."""

    number: int

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        ...


class Judge:
    """All laws and their violations."""

    def __init__(self, files: Files, mailbox: Callable[[], Mailbox]) -> None:
        self.state = ClusterState(files, mailbox)
        self.violations: list[Violation] = []
        self.ends, self.restarted = EveryStateEnds(), GangsRestarted()
        self.stale_state_law, self.new_controller = NoStartOnStaleState(), NewControllerChangesNothing()
        self._laws: tuple[Law, ...] = (
            UnacknowledgedStop(),
            ImagesPrepared(),
            ForeignSettingsKept(),
            BudgetKept(),
            StoppedOnce(),
            UselessStop(),
            self.ends,
            IntentFirst(),
            self.stale_state_law,
            SingleUpgrade(),
            self.restarted,
            self.new_controller,
        )
        self._judged_at: datetime | None = None

    def start_judging(self, store: ObjectStore) -> None:
        """Judge changes from now on; the objects that exist are accepted as they are."""
        self.state.load_store(store)

    def judge_entry(self, entry: JournalEntry) -> None:
        """Judge one change."""
        for law in self._laws:
            for sentence in law.check_entry(entry, self.state):
                self._add_violation(law.number, entry.at, sentence, str(entry))
        self.state.record_entry(entry)

    def judge_deadlines(self, now: datetime) -> None:
        """Judge what should have happened by now."""
        if self._judged_at is not None and (now - self._judged_at).total_seconds() < JUDGE_SECONDS:
            return
        self._judged_at = now
        for sentence in self.ends.check_deadlines(self.state, now):
            self._add_violation(self.ends.number, now, sentence)

    def is_quiet(self) -> bool:
        """Whether no upgrade and no request is under way."""
        upgrades = (
            NodePhase(upgrade.get("status", {}).get("phase", "Pending"))
            for upgrade in self.state.created_objects("NodeUpgrade")
        )
        requests = (
            request.get("status", {}).get("phase", "Requested")
            for request in self.state.created_objects("CheckpointRequest")
        )
        return all(map(is_final, upgrades)) and all(is_final(RequestPhase(phase)) for phase in requests)

    def has_leftovers(self) -> bool:
        """Whether an owner is still stopped, or a node or pod still marked, by the controller."""
        return any(True for _ in self.restarted.check_end(self.state))

    def has_no_failures(self) -> bool:
        """Whether all upgrades succeeded: the controller tries failed upgrades again, also after a restart."""
        return all(_phase_of(upgrade) == NodePhase.SUCCEEDED for upgrade in self.state.created_objects("NodeUpgrade"))

    def judge_end(self, now: datetime) -> None:
        """Judge the final state, after enough time for everything to end."""
        if self.violations:
            return
        for sentence in self.ends.check_end(self.state):
            self._add_violation(self.ends.number, now, sentence)
        for sentence in self.restarted.check_end(self.state):
            self._add_violation(self.restarted.number, now, sentence)

    def _add_violation(self, law: int, at: datetime, sentence: str, entry: str = "") -> None:
        self.violations.append(Violation(law=law, at=at, sentence=sentence, entry=entry))


def _phase_of(value: Object) -> str:
    return str((value.get("status") or {}).get("phase", ""))
