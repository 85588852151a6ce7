"""What happened to objects, in the order of versions, for watches and for pages of a list."""

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from upgrader.kube.refusals import ExpiredError
from upgrader_dev.simulated.apiserver.collection import Stored

KEPT = 20_000
"""Changes, of all kinds together: older ones are compacted."""


class Happened(Struct, frozen=True):
    """A change: ADDED, MODIFIED or DELETED, with the object as it was then."""

    version: int
    collection: str
    type: str
    object: Stored

    @property
    def line(self) -> bytes:
        """As a watch carries it."""
        return b'{"type":"%s","object":%s}' % (self.type.encode(), self.object.raw)


class History:
    """The newest changes."""

    def __init__(self) -> None:
        self._changes: deque[Happened] = deque(maxlen=KEPT)
        self.compacted = 0
        """Changes up to this version are not known any more."""
        self.listeners: list[Callable[[], None]] = []

    def add(self, change: Happened) -> None:
        """The next change."""
        if len(self._changes) == self._changes.maxlen:
            self.compacted = self._changes[0].version
        self._changes.append(change)
        for listener in list(self.listeners):
            listener()

    def compact(self) -> None:
        """Forget everything that was."""
        if self._changes:
            self.compacted = self._changes[-1].version
        self._changes.clear()

    def since(self, version: int, collection: str) -> Iterator[Happened]:
        """Changes of a collection after a version.

        Raises:
            ExpiredError: that version is not known any more.
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
