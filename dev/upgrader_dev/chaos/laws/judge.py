"""The judge: every change goes past every law, and what is left at the end is held against them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader_dev.chaos.laws.journal import Entry
from upgrader_dev.chaos.laws.known import Files, Known, Mailbox, Violation
from upgrader_dev.chaos.laws.laws_of_gangs import Restarted, StoppedInVain, StoppedOnce, UnacknowledgedStop
from upgrader_dev.chaos.laws.laws_of_nodes import Budget, NewController, OneUpgrade, OthersSet, Prepared
from upgrader_dev.chaos.laws.laws_of_records import DoubtHolds, EveryStateEnds, IntentFirst
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore

LOOK_SECONDS = 60


class Law(Protocol):
    """One law, judged change by change. `known` is the world before the change."""

    number: int

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks it, as sentences."""
        ...


class Judge:
    """All laws, and what was found against them."""

    def __init__(self, files: Files, mailbox: Callable[[], Mailbox]) -> None:
        self.known = Known(files, mailbox)
        self.violations: list[Violation] = []
        self.ends, self.restarted = EveryStateEnds(), Restarted()
        self.doubt, self.new_controller = DoubtHolds(), NewController()
        self._laws: tuple[Law, ...] = (
            UnacknowledgedStop(),
            Prepared(),
            OthersSet(),
            Budget(),
            StoppedOnce(),
            StoppedInVain(),
            self.ends,
            IntentFirst(),
            self.doubt,
            OneUpgrade(),
            self.restarted,
            self.new_controller,
        )
        self._looked: datetime | None = None

    def begin(self, store: ObjectStore) -> None:
        """From here on changes are judged; what is there already is taken as it is."""
        self.known.begin(store)

    def read(self, entry: Entry) -> None:
        """Judge one change."""
        for law in self._laws:
            for sentence in law.look(entry, self.known):
                self._found(law.number, entry.at, sentence, str(entry))
        self.known.take(entry)

    def look(self, now: datetime) -> None:
        """Judge what should have happened by now."""
        if self._looked is not None and (now - self._looked).total_seconds() < LOOK_SECONDS:
            return
        self._looked = now
        for sentence in self.ends.overdue(self.known, now):
            self._found(self.ends.number, now, sentence)

    def quiet(self) -> bool:
        """Whether no upgrade and no request is under way."""
        upgrades = (
            NodePhase(each.get("status", {}).get("phase", "Pending")) for each in self.known.made_of("NodeUpgrade")
        )
        requests = (
            each.get("status", {}).get("phase", "Requested") for each in self.known.made_of("CheckpointRequest")
        )
        return all(map(is_final, upgrades)) and all(is_final(RequestPhase(phase)) for phase in requests)

    def left(self) -> bool:
        """Whether anything is stopped or marked by us still: what was removed by force is found by that, and later."""
        return any(True for _ in self.restarted.end(self.known))

    def well(self) -> bool:
        """Whether no upgrade has failed: what failed is tried again, whoever leads then."""
        return all(_phase_of(each) == NodePhase.SUCCEEDED for each in self.known.made_of("NodeUpgrade"))

    def end(self, now: datetime) -> None:
        """Judge what is left when there was time enough for everything."""
        if self.violations:
            return
        for sentence in self.ends.end(self.known):
            self._found(self.ends.number, now, sentence)
        for sentence in self.restarted.end(self.known):
            self._found(self.restarted.number, now, sentence)

    def _found(self, law: int, at: datetime, sentence: str, entry: str = "") -> None:
        self.violations.append(Violation(law=law, at=at, sentence=sentence, entry=entry))


def _phase_of(value: Object) -> str:
    return str((value.get("status") or {}).get("phase", ""))
