"""The objects of one kind in the store, with its indices."""

import bisect
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec

from upgrader.api.resources import ResourceKind
from upgrader_dev.simulated.apiserver.objects import Object, has_fields, has_labels, parse_field_selector

T = TypeVar("T")

Key = tuple[str, str]
"""Namespace and name."""

_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


class StoredObject:
    """A stored object: `value` is never changed; a changed object is another StoredObject."""

    def __init__(self, kind: ResourceKind[Any], value: Object) -> None:
        self.kind = kind
        self.value = value
        self._raw = b""
        self._decoded: dict[type[Any], Any] = {}

    @property
    def raw(self) -> bytes:
        """The object as JSON, encoded once."""
        self._raw = self._raw or msgspec.json.encode(self.value)
        return self._raw

    def decoded(self, type_: type[T]) -> T:
        """The object as the operator's client decodes it, decoded once: the values are frozen."""
        value = self._decoded.get(type_)
        if value is None:
            decoder = _DECODERS.get(type_)
            if decoder is None:
                decoder = _DECODERS[type_] = msgspec.json.Decoder(cast("Any", type_))
            value = self._decoded[type_] = decoder.decode(self.raw)
        return cast("T", value)


class Collection:
    """Objects by namespace and name. Lists are cached until the next change."""

    def __init__(self) -> None:
        self._objects: dict[Key, StoredObject] = {}
        self._keys: list[Key] = []
        """Sorted."""
        self._by_node: dict[str, dict[Key, None]] = {}
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._all: list[StoredObject] | None = None
        self._values: list[Object] | None = None
        self._selected: dict[tuple[str, str, str], list[StoredObject]] = {}
        self._decoded: dict[tuple[str, str, str, type[Any]], list[Any]] = {}

    def get(self, key: Key) -> StoredObject | None:
        """The object with this key."""
        return self._objects.get(key)

    def put(self, key: Key, stored: StoredObject) -> None:
        """Store a new or a changed object."""
        before = self._objects.get(key)
        if before is not None:
            self._remove_from_indices(key, before)
        else:
            bisect.insort(self._keys, key)
        self._objects[key] = stored
        self._by_node.setdefault(_node_name(stored.value), {})[key] = None
        for uid in _owner_uids(stored.value):
            self._by_owner.setdefault(uid, {})[key] = None
        self._clear_lists()

    def pop(self, key: Key) -> StoredObject | None:
        """Remove an object; None if it does not exist."""
        stored = self._objects.pop(key, None)
        if stored is not None:
            del self._keys[bisect.bisect_left(self._keys, key)]
            self._remove_from_indices(key, stored)
            self._clear_lists()
        return stored

    def all(self) -> list[StoredObject]:
        """All objects, sorted by namespace and name."""
        if self._all is None:
            self._all = [self._objects[key] for key in self._keys]
        return self._all

    def values(self) -> list[Object]:
        """The values of all objects, sorted; read-only."""
        if self._values is None:
            self._values = [stored.value for stored in self.all()]
        return self._values

    def selected(self, namespace: str, labels: str, fields: str) -> list[StoredObject]:
        """Objects of a namespace (empty: all namespaces) that match the label and field selectors, sorted."""
        query = (namespace, labels, fields)
        objects = self._selected.get(query)
        if objects is None:
            objects = self._selected[query] = list(self._select(*query))
        return objects

    def decoded(self, namespace: str, labels: str, fields: str, type_: type[T]) -> list[T]:
        """The selected objects as the operator's client decodes them."""
        query = (namespace, labels, fields, type_)
        values = self._decoded.get(query)
        if values is None:
            selected = self.selected(namespace, labels, fields)
            values = self._decoded[query] = [stored.decoded(type_) for stored in selected]
        return values

    def _select(self, namespace: str, labels: str, fields: str) -> Iterator[StoredObject]:
        nodes = [value for path, equal, value in parse_field_selector(fields) if path == ("spec", "nodeName") and equal]
        # as in the API server, which has an index of pods by node
        for stored in self.on_node(nodes[0]) if nodes and nodes[0] else self.all():
            meta = stored.value["metadata"]
            if (
                namespace in ("", meta.get("namespace"))
                and has_labels(meta.get("labels") or {}, labels)
                and has_fields(stored.value, fields)
            ):
                yield stored

    def on_node(self, node: str) -> Iterator[StoredObject]:
        """Pods that are bound to a node (empty: unbound pods), sorted."""
        return (self._objects[key] for key in sorted(self._by_node.get(node, ())))

    def owned(self, uid: str) -> Iterator[StoredObject]:
        """Objects with an owner reference to this uid, sorted."""
        return (self._objects[key] for key in sorted(self._by_owner.get(uid, ())))

    def _clear_lists(self) -> None:
        self._all = self._values = None
        self._selected.clear()
        self._decoded.clear()

    def _remove_from_indices(self, key: Key, stored: StoredObject) -> None:
        del self._by_node[_node_name(stored.value)][key]
        for uid in _owner_uids(stored.value):
            self._by_owner[uid].pop(key, None)


def _node_name(value: Object) -> str:
    node: str | None = value["spec"].get("nodeName") if isinstance(value.get("spec"), dict) else None
    return node or ""


def _owner_uids(value: Object) -> list[str]:
    return [owner["uid"] for owner in value["metadata"].get("ownerReferences") or []]
