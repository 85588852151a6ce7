"""Changes of the store, so that a part of the simulation does not read all objects each second."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from upgrader.api.resources import ResourceKind
from upgrader_dev.simulated.apiserver.collection import Key
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectChange, ObjectStore, collection_of

Facts = Callable[[Object], Iterable[tuple[Hashable, object]]]
"""The facts that a part reads of an object, by the key of the decision that depends on them."""


class Marks:
    """Keys of decisions that are due again because one of their facts changed.

    A round starts with `start_round`. A change during a round counts in it, for keys that follow, and in the next
    round. So a part whose decisions depend only on their facts behaves as it would without marks.
    """

    def __init__(self, store: ObjectStore, facts: Mapping[ResourceKind[Any], Facts]) -> None:
        self._facts = {collection_of(kind): read for kind, read in facts.items()}
        self._all_due = True
        self._settings: object = None
        self._round: set[Hashable] = set()
        self._since: set[Hashable] = set()
        store.listeners.append(self._handle_change)

    def start_round(self, settings: object = None) -> bool:
        """Whether anything is marked; everything is marked in the first round and if the settings changed."""
        self._all_due = self._all_due or settings != self._settings
        due = self._all_due or bool(self._since)
        self._all, self._all_due, self._settings = self._all_due, False, settings
        self._round, self._since = self._since, set()
        return due

    def __contains__(self, key: Hashable) -> bool:
        return self._all or key in self._round or key in self._since

    def _handle_change(self, change: ObjectChange) -> None:
        read = self._facts.get(collection_of(change.kind))
        if read is None:
            return
        before = dict(read(change.before)) if change.before is not None else {}
        after = dict(read(change.after)) if change.after is not None else {}
        removed = before.keys() - after.keys()
        self._since |= removed | {key for key, fact in after.items() if key not in before or before[key] != fact}


class Subset:
    """The objects of a kind that satisfy a predicate."""

    def __init__(self, store: ObjectStore, kind: ResourceKind[Any], predicate: Callable[[Object], bool]) -> None:
        self._store, self._kind, self._predicate = store, kind, predicate
        self._collection = collection_of(kind)
        self._keys: set[Key] = set()
        for value in store.list_values(kind):
            self._update_key(value["metadata"])
        store.listeners.append(self._handle_change)

    def list_values(self) -> list[Object]:
        """The current objects, sorted by namespace and name; read-only."""
        stored = (self._store.find_stored(self._kind, name, namespace) for namespace, name in sorted(self._keys))
        return [entry.value for entry in stored if entry is not None]

    def _handle_change(self, change: ObjectChange) -> None:
        changed = change.after or change.before
        if changed is not None and collection_of(change.kind) == self._collection:
            self._update_key(changed["metadata"])

    def _update_key(self, meta: Object) -> None:
        """Read the current object: another listener may have changed it."""
        namespace, name = meta.get("namespace", ""), meta["name"]
        stored = self._store.find_stored(self._kind, name, namespace)
        if stored is not None and self._predicate(stored.value):
            self._keys.add((namespace, name))
        else:
            self._keys.discard((namespace, name))
