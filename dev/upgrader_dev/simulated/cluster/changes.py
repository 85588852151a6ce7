"""What changed in the store, so that a part of the world need not look at everything in every second."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from upgrader.api.resources import ResourceKind
from upgrader_dev.simulated.apiserver.collection import Key
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import Change, ObjectStore, collection_of

Facts = Callable[[Object], Iterable[tuple[Hashable, object]]]
"""What a part reads of an object, by the key of what it decides with it."""


class Marks:
    """Keys of what is to be decided again, because a fact that it is decided from has changed.

    A round begins with `begin`. What changes during a round counts in it, for keys whose turn is still to come, and
    in the next one. So a part whose decisions depend on nothing but their facts does what it would do without marks.
    """

    def __init__(self, store: ObjectStore, facts: Mapping[ResourceKind[Any], Facts]) -> None:
        self._facts = {collection_of(kind): read for kind, read in facts.items()}
        self._everything = True
        self._settings: object = None
        self._round: set[Hashable] = set()
        self._since: set[Hashable] = set()
        store.listeners.append(self._take)

    def begin(self, settings: object = None) -> bool:
        """Whether anything is marked; everything is in the first round, and when the settings are other ones."""
        self._everything = self._everything or settings != self._settings
        due = self._everything or bool(self._since)
        self._all, self._everything, self._settings = self._everything, False, settings
        self._round, self._since = self._since, set()
        return due

    def __contains__(self, key: Hashable) -> bool:
        return self._all or key in self._round or key in self._since

    def _take(self, change: Change) -> None:
        read = self._facts.get(collection_of(change.kind))
        if read is None:
            return
        before = dict(read(change.before)) if change.before is not None else {}
        after = dict(read(change.after)) if change.after is not None else {}
        gone = before.keys() - after.keys()
        self._since |= gone | {key for key, fact in after.items() if key not in before or before[key] != fact}


class Subset:
    """The objects of a kind for which something holds."""

    def __init__(self, store: ObjectStore, kind: ResourceKind[Any], holds: Callable[[Object], bool]) -> None:
        self._store, self._kind, self._holds = store, kind, holds
        self._collection = collection_of(kind)
        self._keys: set[Key] = set()
        for value in store.seen(kind):
            self._look(value["metadata"])
        store.listeners.append(self._take)

    def seen(self) -> list[Object]:
        """As they are now, by namespace and name, to be read only."""
        stored = (self._store.stored(self._kind, name, namespace) for namespace, name in sorted(self._keys))
        return [each.value for each in stored if each is not None]

    def _take(self, change: Change) -> None:
        changed = change.after or change.before
        if changed is not None and collection_of(change.kind) == self._collection:
            self._look(changed["metadata"])

    def _look(self, meta: Object) -> None:
        """By the object as it is now: another listener may have changed it since."""
        namespace, name = meta.get("namespace", ""), meta["name"]
        found = self._store.stored(self._kind, name, namespace)
        if found is not None and self._holds(found.value):
            self._keys.add((namespace, name))
        else:
            self._keys.discard((namespace, name))
