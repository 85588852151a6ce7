"""The objects of one kind as they lie in the store, with the indices that everybody asks for."""

import bisect
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec

from upgrader.api.resources import ResourceKind
from upgrader_dev.simulated.apiserver.objects import Object, fields_of, has_fields, has_labels

T = TypeVar("T")

Key = tuple[str, str]
"""Namespace and name."""

_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


class Stored:
    """An object as it lies in the store: nobody changes `value`, a changed object is another Stored."""

    def __init__(self, kind: ResourceKind[Any], value: Object) -> None:
        self.kind = kind
        self.value = value
        self._raw = b""
        self._decoded: dict[type[Any], Any] = {}

    @property
    def raw(self) -> bytes:
        """As JSON, encoded once however often it is read."""
        self._raw = self._raw or msgspec.json.encode(self.value)
        return self._raw

    def decoded(self, type_: type[T]) -> T:
        """As our client reads it, decoded once: the values are frozen, and nobody changes what is in them."""
        found = self._decoded.get(type_)
        if found is None:
            decoder = _DECODERS.get(type_)
            if decoder is None:
                decoder = _DECODERS[type_] = msgspec.json.Decoder(cast("Any", type_))
            found = self._decoded[type_] = decoder.decode(self.raw)
        return cast("T", found)


class Collection:
    """Objects by namespace and name. Lists are made once for as long as nothing changes."""

    def __init__(self) -> None:
        self._objects: dict[Key, Stored] = {}
        self._keys: list[Key] = []
        """Sorted."""
        self._by_node: dict[str, dict[Key, None]] = {}
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._all: list[Stored] | None = None
        self._values: list[Object] | None = None
        self._selected: dict[tuple[str, str, str], list[Stored]] = {}
        self._decoded: dict[tuple[str, str, str, type[Any]], list[Any]] = {}

    def get(self, key: Key) -> Stored | None:
        """The object of that name."""
        return self._objects.get(key)

    def put(self, key: Key, stored: Stored) -> None:
        """Keep a new object, or what an object has become."""
        before = self._objects.get(key)
        if before is not None:
            self._forget(key, before)
        else:
            bisect.insort(self._keys, key)
        self._objects[key] = stored
        self._by_node.setdefault(_node_name(stored.value), {})[key] = None
        for uid in _owner_uids(stored.value):
            self._by_owner.setdefault(uid, {})[key] = None
        self._make_lists_again()

    def pop(self, key: Key) -> Stored | None:
        """Take an object out; None when it is not there."""
        found = self._objects.pop(key, None)
        if found is not None:
            del self._keys[bisect.bisect_left(self._keys, key)]
            self._forget(key, found)
            self._make_lists_again()
        return found

    def all(self) -> list[Stored]:
        """By namespace and name."""
        if self._all is None:
            self._all = [self._objects[key] for key in self._keys]
        return self._all

    def values(self) -> list[Object]:
        """As `all`, to be read only."""
        if self._values is None:
            self._values = [each.value for each in self.all()]
        return self._values

    def selected(self, namespace: str, labels: str, fields: str) -> list[Stored]:
        """Of a namespace (an empty one: of all) those that label and field selectors select, as `all`."""
        query = (namespace, labels, fields)
        found = self._selected.get(query)
        if found is None:
            found = self._selected[query] = list(self._select(*query))
        return found

    def decoded(self, namespace: str, labels: str, fields: str, type_: type[T]) -> list[T]:
        """As `selected`, as our client reads them."""
        query = (namespace, labels, fields, type_)
        found = self._decoded.get(query)
        if found is None:
            selected = self.selected(namespace, labels, fields)
            found = self._decoded[query] = [each.decoded(type_) for each in selected]
        return found

    def _select(self, namespace: str, labels: str, fields: str) -> Iterator[Stored]:
        nodes = [wanted for path, equal, wanted in fields_of(fields) if path == ("spec", "nodeName") and equal]
        # As the real one, which keeps an index of the nodes of pods.
        for each in self.on_node(nodes[0]) if nodes and nodes[0] else self.all():
            meta = each.value["metadata"]
            if (
                namespace in ("", meta.get("namespace"))
                and has_labels(meta.get("labels") or {}, labels)
                and has_fields(each.value, fields)
            ):
                yield each

    def on_node(self, node: str) -> Iterator[Stored]:
        """Pods that are bound to a node (to none: an empty name), by namespace and name."""
        return (self._objects[key] for key in sorted(self._by_node.get(node, ())))

    def owned(self, uid: str) -> Iterator[Stored]:
        """Objects with an owner reference to that uid, by namespace and name."""
        return (self._objects[key] for key in sorted(self._by_owner.get(uid, ())))

    def _make_lists_again(self) -> None:
        self._all = self._values = None
        self._selected.clear()
        self._decoded.clear()

    def _forget(self, key: Key, stored: Stored) -> None:
        del self._by_node[_node_name(stored.value)][key]
        for uid in _owner_uids(stored.value):
            self._by_owner[uid].pop(key, None)


def _node_name(value: Object) -> str:
    node: str | None = value["spec"].get("nodeName") if isinstance(value.get("spec"), dict) else None
    return node or ""


def _owner_uids(value: Object) -> list[str]:
    return [owner["uid"] for owner in value["metadata"].get("ownerReferences") or []]
