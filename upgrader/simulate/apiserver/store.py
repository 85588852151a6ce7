"""Objects as an API server keeps them: versions, generations, status apart, finalizers, owners, validation.

Nothing here is asynchronous or counted: it is the world's side. FakeCluster puts our client's side on top of it.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from upgrader.api.crd import schema
from upgrader.api.kinds import DECIDED_ONCE, FORCE_GROWS, KINDS
from upgrader.api.resources import NAMESPACES, PODS, ResourceKind
from upgrader.core.errors import ConfigurationError, NameTakenError, NotFoundError
from upgrader.core.timing import show
from upgrader.simulate.apiserver.collection import Collection, Key, Stored
from upgrader.simulate.apiserver.history import Happened, History
from upgrader.simulate.apiserver.objects import Object, copied, fields_of, has_fields, has_labels, merged
from upgrader.simulate.cluster.ports import FakeClock

CLUSTER_SIDE = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "name", "namespace")
"""Metadata that no client writes."""

STATUS_ON_CREATE = {"nodes", "persistentvolumes"}
"""Kinds whose creator may set a status: kubelets register with one."""

_CHANGE_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "self == oldSelf": lambda new, old: new == old,
    "self >= oldSelf": lambda new, old: new >= old,
    DECIDED_ONCE: lambda new, old: new | {"force": 0} == old | {"force": 0},
    FORCE_GROWS: lambda new, old: all(one in new.get("force", []) for one in old.get("force", [])),
}
"""Of the CEL rules those that our own code could break; tests/cluster shows all of them on the real API server."""
_RULES = {kind.resource.plural: kind.rules for kind in KINDS}
_SCHEMAS = {kind.resource.plural: schema(kind.resource.type) for kind in KINDS}


class Change(msgspec.Struct, frozen=True):
    """Something happened to an object: `before` is None when it is new, `after` when it is gone. To be read only."""

    kind: ResourceKind[Any]
    before: Object | None
    after: Object | None


class ObjectStore:
    """All objects. `listeners` are told of every change, whoever made it, and may make further ones."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.listeners: list[Callable[[Change], None]] = []
        self.history = History()
        self.version = 0
        """Of the last change."""
        self._objects: dict[str, Collection] = {}
        self._uids = itertools.count(1)
        for name in ("default", "kube-system", "gpu-upgrader-system"):
            self.put(NAMESPACES, {"metadata": {"name": name}})

    # ---- the world's own way in: anything may be set

    def put(self, kind: ResourceKind[Any], manifest: Object) -> Object:
        """Create or replace an object as it is, status included; its namespace is made when it is missing."""
        body = copied(manifest)
        meta = body.setdefault("metadata", {})
        namespace = meta.setdefault("namespace", "default") if kind.namespaced else ""
        if namespace and self.stored(NAMESPACES, namespace) is None:
            self.put(NAMESPACES, {"metadata": {"name": namespace}})
        if self.stored(kind, meta["name"], namespace) is not None:
            return self.save(kind, meta["name"], namespace, lambda old: merged(body, _identity(old)))
        return self.add(kind, body)

    def change(self, kind: ResourceKind[Any], name: str, patch: Object, namespace: str = "") -> Object:
        """Merge a patch into an object, status included."""
        found = self.stored(kind, name, namespace)
        if found is not None and _says(found.value, patch):  # most of what the world writes every second
            return copied(found.value)
        return self.save(kind, name, namespace, lambda old: merged(old, patch))

    def remove(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> None:
        """Take an object away at once, whatever its finalizers say."""
        self._drop(kind, self._key(kind, name, namespace))

    # ---- what the API server does

    def stored(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> Stored | None:
        """The object itself, to be read only."""
        found = self._objects.get(collection_of(kind))
        return found.get(self._key(kind, name, namespace)) if found is not None else None

    def all_stored(self, kind: ResourceKind[Any], namespace: str = "") -> Iterator[Stored]:
        """The objects themselves, to be read only, by namespace and name; an empty namespace means all."""
        found = self._objects.get(collection_of(kind))
        everything = found.all() if found is not None else []
        if not namespace:
            return iter(everything)
        return (each for each in everything if each.value["metadata"].get("namespace") == namespace)

    def selected(self, kind: ResourceKind[Any], namespace: str, labels: str, fields: str) -> Iterator[Stored]:
        """The objects that label and field selectors select, to be read only."""
        everything = self.all_stored(kind, namespace)
        nodes = [wanted for path, equal, wanted in fields_of(fields) if path == ("spec", "nodeName") and equal]
        if nodes and nodes[0] and kind == PODS:  # as the real one, which keeps an index of it
            found = self._objects.get(collection_of(PODS))
            on_node = found.on_node(nodes[0]) if found is not None else iter(())
            everything = (each for each in on_node if namespace in ("", each.value["metadata"]["namespace"]))
        return (
            each
            for each in everything
            if has_labels(each.value["metadata"].get("labels") or {}, labels) and has_fields(each.value, fields)
        )

    def everything(self) -> Iterator[Stored]:
        """All objects of all kinds, to be read only."""
        return (each for name in sorted(self._objects) for each in self._objects[name].all())

    def on_node(self, node: str) -> list[Object]:
        """Pods that are bound to a node (to none: an empty name), to be read only."""
        found = self._objects.get(collection_of(PODS))
        return [each.value for each in found.on_node(node)] if found is not None else []

    def owned(self, kind: ResourceKind[Any], uid: str) -> list[Object]:
        """Objects of a kind that an object owns, to be read only."""
        found = self._objects.get(collection_of(kind))
        return [each.value for each in found.owned(uid)] if found is not None else []

    def find(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> Object | None:
        """A copy of the object."""
        found = self.stored(kind, name, namespace)
        return msgspec.json.decode(found.raw) if found else None

    def read(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> Object:
        """The object, to be read only.

        Raises:
            NotFoundError: it is not there.
        """
        found = self.stored(kind, name, namespace)
        if found is None:
            raise NotFoundError(f"{kind.kind} {name} is not there")
        return found.value

    def all(self, kind: ResourceKind[Any], namespace: str = "") -> Iterator[Object]:
        """Copies, in order of namespace and name; an empty namespace means all."""
        return (msgspec.json.decode(found.raw) for found in self.all_stored(kind, namespace))

    def seen(self, kind: ResourceKind[Any], namespace: str = "") -> list[Object]:
        """As `all`, not copied: for the world's parts, which look at everything every second and change nothing there.

        They are told of the objects as they are now; what is saved meanwhile is another value.
        """
        if not namespace:
            found = self._objects.get(collection_of(kind))
            return found.values() if found is not None else []
        return [each.value for each in self.all_stored(kind, namespace)]

    def add(self, kind: ResourceKind[Any], body: Object) -> Object:
        """A new object; the cluster's side of its metadata is made here."""
        stored = self.check(kind, body)
        stored["metadata"].setdefault("uid", str(uuid.UUID(int=next(self._uids))))
        stored["metadata"] |= {
            "generation": 1,
            "creationTimestamp": show(self.clock.now()),
            "resourceVersion": self._next_version(),
        }
        self._keep(kind, stored, None)
        return copied(stored)

    def check(self, kind: ResourceKind[Any], body: Object) -> Object:
        """A new object with its defaults, as far as it may be added; nothing is kept."""
        meta = body["metadata"]
        namespace = meta.get("namespace", "") if kind.namespaced else ""
        if kind.namespaced and self.stored(NAMESPACES, namespace) is None:
            raise NotFoundError(f'namespaces "{namespace}" not found')
        if self.stored(kind, meta["name"], namespace) is not None:
            raise NameTakenError(f"{kind.kind} {meta['name']} exists already")
        stored: Object = {"apiVersion": kind.api_version, "kind": kind.kind} | copied(body)
        stored["metadata"] = {key: value for key, value in meta.items() if value is not None}
        if kind.plural in _SCHEMAS:
            _fill_defaults(stored, _SCHEMAS[kind.plural])
        self._judge(kind, stored, None)
        return stored

    def save(self, kind: ResourceKind[Any], name: str, namespace: str, edit: Callable[[Object], Object]) -> Object:
        """Replace an object by an edited copy: same identity, new version if anything changed, next generation if the
        wish changed; gone when the last finalizer of a deleted one goes.
        """
        found = self.stored(kind, name, namespace)
        if found is None:
            raise NotFoundError(f"{kind.kind} {name} is not there")
        old = found.value
        new: Object = merged(edit(copied(old)), _identity(old))
        if kind.plural in _SCHEMAS:
            _fill_defaults(new, _SCHEMAS[kind.plural])
        if new == old:
            return copied(old)
        self._judge(kind, new, old)
        held = old["metadata"].get("finalizers") or []
        if old["metadata"].get("deletionTimestamp") and set(new["metadata"].get("finalizers") or []) - set(held):
            raise ConfigurationError(
                f"{kind.kind} {name} is not valid",
                details="no new finalizers can be added if the object is being deleted",
            )
        if _wish(new) != _wish(old):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        new["metadata"]["resourceVersion"] = self._next_version()
        self._keep(kind, new, old)
        if new["metadata"].get("deletionTimestamp") and not _held(kind, new):
            self._drop(kind, self._key(kind, name, namespace))
        return copied(new)

    def mark_deleted(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> None:
        """As DELETE does: finalizers, and kubelets of bound pods, hold the object; what it owns goes with it."""
        found = self.stored(kind, name, namespace)
        if found is None:
            raise NotFoundError(f"{kind.kind} {name} is not there")
        old = found.value
        if not _held(kind, old):
            self._drop(kind, self._key(kind, name, namespace))
        elif not old["metadata"].get("deletionTimestamp"):
            new = copied(old)
            new["metadata"] |= {
                "deletionTimestamp": show(self.clock.now()),
                "resourceVersion": self._next_version(),
            }
            self._keep(kind, new, old)

    # ---- inside

    def _key(self, kind: ResourceKind[Any], name: str, namespace: str) -> Key:
        return (namespace if kind.namespaced else "", name)

    def _keep(self, kind: ResourceKind[Any], value: Object, before: Object | None) -> None:
        meta = value["metadata"]
        stored = Stored(kind, value)
        collection = self._objects.setdefault(collection_of(kind), Collection())
        collection.put(self._key(kind, meta["name"], meta.get("namespace", "")), stored)
        happened = "ADDED" if before is None else "MODIFIED"
        self.history.add(Happened(self.version, collection_of(kind), happened, stored))
        self._tell(kind, before, value)

    def _drop(self, kind: ResourceKind[Any], key: Key) -> None:
        collection = self._objects.get(collection_of(kind))
        gone = collection.pop(key) if collection is not None else None
        if gone is None:
            return
        last = gone.value | {"metadata": gone.value["metadata"] | {"resourceVersion": self._next_version()}}
        self.history.add(Happened(self.version, collection_of(kind), "DELETED", Stored(kind, last)))
        self._tell(kind, gone.value, None)
        uid = gone.value["metadata"]["uid"]
        for each in [each for of_kind in self._objects.values() for each in of_kind.owned(uid)]:
            self._collect(each)

    def _collect(self, stored: Stored) -> None:
        """As the garbage collector does: an object goes with the last of its owners; else only its reference goes."""
        meta = stored.value["metadata"]
        kind, name, namespace = stored.kind, meta["name"], meta.get("namespace", "")
        if self.stored(kind, name, namespace) is None:
            return
        left = [owner for owner in meta["ownerReferences"] if self._exists(owner, namespace)]
        if left:
            self.save(kind, name, namespace, lambda old: merged(old, {"metadata": {"ownerReferences": left}}))
        else:
            self.mark_deleted(kind, name, namespace)

    def _exists(self, owner: Object, namespace: str) -> bool:
        """Whether an owner is there; of a kind that nobody stores here nothing is known."""
        for collection in self._objects.values():
            for each in collection.all()[:1]:
                if each.kind.kind == owner.get("kind"):
                    found = collection.get((namespace if each.kind.namespaced else "", owner["name"]))
                    return found is not None and found.value["metadata"]["uid"] == owner["uid"]
        return False

    def _next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def _tell(self, kind: ResourceKind[Any], before: Object | None, after: Object | None) -> None:
        for listener in list(self.listeners):
            listener(Change(kind, before, after))

    def _judge(self, kind: ResourceKind[Any], new: Object, old: Object | None) -> None:
        try:
            msgspec.convert(new, kind.type)
        except msgspec.ValidationError as error:
            name = new["metadata"]["name"]
            raise ConfigurationError(f"{kind.kind} {name} is not valid", details=str(error)) from error
        for rule in _RULES.get(kind.plural, ()) if old is not None else ():
            judge = _CHANGE_RULES.get(rule.cel)
            before, after = _at(old, rule.path), _at(new, rule.path)
            if judge is not None and None not in (before, after) and not judge(after, before):
                raise ConfigurationError(f"{kind.kind} {new['metadata']['name']} is not valid", details=rule.sentence)


def _says(value: Any, patch: Any) -> bool:
    """Whether a merge patch would change nothing."""
    if not isinstance(patch, dict):
        return bool(value == patch)
    return isinstance(value, dict) and all(
        name not in value if part is None else name in value and _says(value[name], part)
        for name, part in patch.items()
    )


def collection_of(kind: ResourceKind[Any]) -> str:
    """Name of the collection that a kind's objects lie in, whatever version they are read in."""
    return f"{kind.plural}.{kind.group}"


def _identity(old: Object) -> Object:
    """The cluster's side of an object's metadata, as a merge patch (None: it stays absent)."""
    return {"metadata": {name: old["metadata"].get(name) for name in CLUSTER_SIDE}}


def _held(kind: ResourceKind[Any], value: Object) -> bool:
    """Whether a deleted object stays: for its finalizers, or until the kubelet has ended the pod's containers."""
    bound = kind == PODS and bool(value.get("spec", {}).get("nodeName"))
    running = value.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    return bool(value["metadata"].get("finalizers")) or (bound and running)


def _wish(value: Object) -> Object:
    return {name: part for name, part in value.items() if name not in ("metadata", "status")}


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _fill_defaults(value: Any, part: Object) -> None:
    """Defaults of a structural schema, outer before inner."""
    if isinstance(value, list):
        for item in value:
            _fill_defaults(item, part.get("items", {}))
    elif isinstance(value, dict):
        for name, child in part.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = copied(child["default"])
            if name in value:
                _fill_defaults(value[name], child)
