"""The history of changes in the order of resourceVersions, for watches and for pages of a list."""

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from upgrader.kube.refusals import ExpiredError
from upgrader_dev.simulated.apiserver.collection import StoredObject

KEPT_CHANGES = 20_000
"""The number of changes, of all kinds together, before the oldest are compacted."""


class VersionedChange(Struct, frozen=True):
    """A change: ADDED, MODIFIED or DELETED, with the object at that time."""

    version: int
    collection: str
    type: str
    object: StoredObject

    @property
    def line(self) -> bytes:
        """The line of a watch."""
        return b'{"type":"%s","object":%s}' % (self.type.encode(), self.object.raw)


class History:
    """The latest changes."""

    def __init__(self) -> None:
        self._changes: deque[VersionedChange] = deque(maxlen=KEPT_CHANGES)
        self.compacted = 0
        """Changes up to this version are compacted."""
        self.listeners: list[Callable[[], None]] = []

    def add(self, change: VersionedChange) -> None:
        """Add a change."""
        if len(self._changes) == self._changes.maxlen:
            self.compacted = self._changes[0].version
        self._changes.append(change)
        for listener in list(self.listeners):
            listener()

    def compact(self) -> None:
        """Compact all changes."""
        if self._changes:
            self.compacted = self._changes[-1].version
        self._changes.clear()

    def since(self, version: int, collection: str) -> Iterator[VersionedChange]:
        """Changes of a collection after a version.

        Raises:
            ExpiredError: changes after that version are compacted.
        """
        if version < self.compacted:
            raise ExpiredError(f"too old resource version: {version} ({self.compacted})")
        newer = []
        for change in reversed(self._changes):
            if change.version <= version:
                break
            if change.collection == collection:
                newer.append(change)
        return reversed(newer)
