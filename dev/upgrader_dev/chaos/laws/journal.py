"""The journal of a run: which object changed, and who changed it. The laws judge its entries."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from upgrader_dev.simulated.apiserver.cluster import Write
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectChange, ObjectStore


class Author(StrEnum):
    """Who changed an object."""

    CONTROLLER = "controller"
    WORLD = "world"


class JournalEntry(Struct, frozen=True, kw_only=True):
    """A change of an object. `sent`: when the controller sent the write; earlier than `at` if the write was delayed."""

    at: datetime
    kind: str
    author: Author = Author.WORLD
    verb: str = ""  # the verb of the controller's write: create, merge, edit, apply, delete or evict
    before: Object | None = None
    after: Object | None = None
    sent: datetime | None = None

    @property
    def object(self) -> Object:
        """The object after the change; the last state of a removed object."""
        value = self.after or self.before
        if value is None:
            raise ValueError("an entry is about an object")
        return value

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        meta = self.object["metadata"]
        return meta.get("namespace", ""), meta["name"]

    @property
    def sent_at(self) -> datetime:
        """When the controller sent the write; the time of the change if the write was not delayed."""
        return self.sent or self.at

    @property
    def by_controller(self) -> bool:
        """Whether a write of the controller caused the change."""
        return self.author is Author.CONTROLLER

    def __str__(self) -> str:
        """One line: time, author, verb and object."""
        place = "/".join(part for part in self.key if part)
        what = self.verb or ("removed" if self.after is None else "added" if self.before is None else "changed")
        return f"{self.at:%H:%M:%S} {self.author.value}: {what} {self.kind} {place}"


Reader = Callable[[JournalEntry], None]


class Journal:
    """Reports each change of a store with its author; it stores nothing."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._write: tuple[Write, datetime] | None = None
        self.readers: list[Reader] = []
        store.listeners.append(self._forward_change)

    @contextmanager
    def attribute_changes(self, write: Write, sent: datetime) -> Iterator[None]:
        """Changes inside this context are the controller's, including the garbage collection of what it deletes."""
        outer, self._write = self._write, (write, sent)
        try:
            yield
        finally:
            self._write = outer

    def _forward_change(self, change: ObjectChange) -> None:
        write, sent = self._write or (None, None)
        entry = JournalEntry(
            at=self._store.clock.now(),
            kind=change.kind.kind,
            author=Author.WORLD if write is None else Author.CONTROLLER,
            verb=write.verb if write is not None else "",
            before=change.before,
            after=change.after,
            sent=sent,
        )
        for reader in self.readers:
            reader(entry)
