"""The objects of a fake API server: versions, generations, status, finalizers, owners, validation.

Nothing here is asynchronous or recorded: it is for the simulation. FakeCluster adds the operator's client.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from upgrader.api.kinds import DECIDED_ONCE, FORCE_GROWS, KINDS
from upgrader.api.resources import NAMESPACES, PODS, ResourceKind
from upgrader.core.errors import ConfigurationError, NameTakenError, NotFoundError
from upgrader.core.timing import format_time
from upgrader_dev.simulated.apiserver.collection import Collection, Key, StoredObject
from upgrader_dev.simulated.apiserver.defaults import fill_defaults
from upgrader_dev.simulated.apiserver.history import History, VersionedChange
from upgrader_dev.simulated.apiserver.objects import Object, apply_merge_patch, copy_value
from upgrader_dev.simulated.cluster.ports import FakeClock

T = TypeVar("T")

SERVER_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "name",
    "namespace",
)
"""Metadata that clients cannot write."""

STATUS_ON_CREATE = {"nodes", "persistentvolumes"}
"""Kinds that are created with a status: kubelets register with one."""

_CHANGE_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "self == oldSelf": lambda new, old: new == old,
    "self >= oldSelf": lambda new, old: new >= old,
    DECIDED_ONCE: lambda new, old: new | {"force": 0} == old | {"force": 0},
    FORCE_GROWS: lambda new, old: all(item in new.get("force", []) for item in old.get("force", [])),
}
"""The CEL rules that the operator's code could violate; tests/cluster checks all rules on the real API server."""
_RULES = {kind.resource.plural: kind.rules for kind in KINDS}


class ObjectChange(msgspec.Struct, frozen=True):
    """A change of an object: `before` is None if it is new, `after` if it is removed. Read-only."""

    kind: ResourceKind[Any]
    before: Object | None
    after: Object | None


class ObjectStore:
    """All objects. `listeners` receive every change, and may cause further changes."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.listeners: list[Callable[[ObjectChange], None]] = []
        self.history = History()
        self.version = 0
        """The version of the last change."""
        self._objects: dict[str, Collection] = {}
        self._uids = itertools.count(1)
        for name in ("default", "kube-system", "gpu-upgrader-system"):
            self.put(NAMESPACES, {"metadata": {"name": name}})

    # ---- the world's own way in: anything may be set

    def put(self, kind: ResourceKind[Any], manifest: Object) -> Object:
        """Create or replace an object as it is, with its status; a missing namespace is created.

        Returns the object, as `change` does; it is read-only.
        """
        body = copy_value(manifest)
        meta = body.setdefault("metadata", {})
        namespace = meta.setdefault("namespace", "default") if kind.namespaced else ""
        if namespace and self.find_stored(NAMESPACES, namespace) is None:
            self.put(NAMESPACES, {"metadata": {"name": namespace}})
        if self.find_stored(kind, meta["name"], namespace) is not None:
            return self.save(
                kind, meta["name"], namespace, lambda old: apply_merge_patch(body, _identity_patch(old))
            ).value
        return self.add(kind, body).value

    def change(self, kind: ResourceKind[Any], name: str, patch: Object, namespace: str = "") -> Object:
        """Merge a patch into an object, including its status."""
        stored = self.find_stored(kind, name, namespace)
        if stored is not None and _is_unchanged(stored.value, patch):  # most updates of the simulation change nothing
            return stored.value
        return self.save(kind, name, namespace, lambda old: apply_merge_patch(old, patch)).value

    def remove(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> None:
        """Remove an object immediately, regardless of its finalizers."""
        self._remove_object(kind, self._key(kind, name, namespace))

    # ---- what the API server does

    def find_stored(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> StoredObject | None:
        """The stored object; read-only."""
        collection = self._objects.get(collection_of(kind))
        return collection.get(self._key(kind, name, namespace)) if collection is not None else None

    def list_stored(self, kind: ResourceKind[Any], namespace: str = "") -> Iterator[StoredObject]:
        """The stored objects, sorted by namespace and name; read-only. An empty namespace means all."""
        objects = self._collection(kind).all()
        if not namespace:
            return iter(objects)
        return (stored for stored in objects if stored.value["metadata"].get("namespace") == namespace)

    def select(self, kind: ResourceKind[Any], namespace: str, labels: str, fields: str) -> Sequence[StoredObject]:
        """The objects that match label and field selectors; read-only."""
        return self._collection(kind).selected(namespace, labels, fields)

    def decode(self, kind: ResourceKind[T], namespace: str, labels: str, fields: str) -> Sequence[T]:
        """The selected objects as the operator's client decodes them."""
        return self._collection(kind).decoded(namespace, labels, fields, kind.type)

    def all_objects(self) -> Iterator[StoredObject]:
        """All objects of all kinds; read-only."""
        return (stored for name in sorted(self._objects) for stored in self._objects[name].all())

    def pods_on_node(self, node: str) -> list[Object]:
        """Pods that are bound to a node (empty: unbound pods); read-only."""
        return [stored.value for stored in self._collection(PODS).on_node(node)]

    def list_owned(self, kind: ResourceKind[Any], uid: str) -> list[Object]:
        """Objects of a kind that an object owns; read-only."""
        return [stored.value for stored in self._collection(kind).owned(uid)]

    def find(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> Object | None:
        """A copy of the object."""
        stored = self.find_stored(kind, name, namespace)
        return msgspec.json.decode(stored.raw) if stored else None

    def read(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> Object:
        """The object; read-only.

        Raises:
            NotFoundError: the object does not exist.
        """
        stored = self.find_stored(kind, name, namespace)
        if stored is None:
            raise NotFoundError(f"{kind.plural} {name} does not exist")
        return stored.value

    def copy_all(self, kind: ResourceKind[Any], namespace: str = "") -> Iterator[Object]:
        """Copies, sorted by namespace and name; an empty namespace means all."""
        return (msgspec.json.decode(stored.raw) for stored in self.list_stored(kind, namespace))

    def list_values(self, kind: ResourceKind[Any], namespace: str = "") -> list[Object]:
        """The values of `all` without copies, for controllers of the simulation that read all objects each second.

        The list shows the current objects; a later change is another value.
        """
        if not namespace:
            return self._collection(kind).values()
        return [stored.value for stored in self.list_stored(kind, namespace)]

    def add(self, kind: ResourceKind[Any], body: Object) -> StoredObject:
        """Add a new object; the metadata of the server is set here."""
        value = self.check(kind, body)
        value["metadata"].setdefault("uid", str(uuid.UUID(int=next(self._uids))))
        value["metadata"] |= {"generation": 1, "creationTimestamp": format_time(self.clock.now())}
        return self._store_object(self._next_version(kind, value), None)

    def check(self, kind: ResourceKind[Any], body: Object) -> Object:
        """A new object with its defaults, after validation; it is not stored."""
        meta = body["metadata"]
        namespace = meta.get("namespace", "") if kind.namespaced else ""
        if kind.namespaced and self.find_stored(NAMESPACES, namespace) is None:
            raise NotFoundError(f'namespaces "{namespace}" not found')
        if self.find_stored(kind, meta["name"], namespace) is not None:
            raise NameTakenError("the name is taken")
        new: Object = {"apiVersion": kind.api_version, "kind": kind.kind} | copy_value(body)
        new["metadata"] = {key: value for key, value in new["metadata"].items() if value is not None}
        fill_defaults(kind.plural, new)
        _validate_object(StoredObject(kind, new), None)
        return new

    def save(
        self, kind: ResourceKind[Any], name: str, namespace: str, edit: Callable[[Object], Object]
    ) -> StoredObject:
        """Replace an object by an edited version, which may share parts with it: same identity, a new version if
        anything changed, a new generation if the spec changed; removed with the last finalizer of a deleted object.
        """
        stored = self.find_stored(kind, name, namespace)
        if stored is None:
            raise NotFoundError(f"{kind.plural} {name} does not exist")
        old = stored.value
        value: Object = apply_merge_patch(edit(old), _identity_patch(old))
        fill_defaults(kind.plural, value)
        if value == old:
            return stored
        if _desired_state(value) != _desired_state(old):
            value["metadata"]["generation"] = old["metadata"]["generation"] + 1
        new = self._next_version(kind, value)
        _validate_object(new, old)
        finalizers = old["metadata"].get("finalizers") or []
        if old["metadata"].get("deletionTimestamp") and set(value["metadata"].get("finalizers") or []) - set(
            finalizers
        ):
            raise ConfigurationError(
                f"{kind.kind} {name} is not valid",
                details="no new finalizers can be added if the object is being deleted",
            )
        self._store_object(new, old)
        if value["metadata"].get("deletionTimestamp") and not _is_held(kind, value):
            self._remove_object(kind, self._key(kind, name, namespace))
        return new

    def mark_deleted(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> None:
        """DELETE: finalizers, and kubelets of bound pods, delay the removal; owned objects are garbage-collected."""
        stored = self.find_stored(kind, name, namespace)
        if stored is None:
            raise NotFoundError(f"{kind.plural} {name} does not exist")
        old = stored.value
        if not _is_held(kind, old):
            self._remove_object(kind, self._key(kind, name, namespace))
        elif not old["metadata"].get("deletionTimestamp"):
            meta = old["metadata"] | {"deletionTimestamp": format_time(self.clock.now())}
            self._store_object(self._next_version(kind, old | {"metadata": meta}), old)

    # ---- inside

    def _key(self, kind: ResourceKind[Any], name: str, namespace: str) -> Key:
        return (namespace if kind.namespaced else "", name)

    def _collection(self, kind: ResourceKind[Any]) -> Collection:
        name = collection_of(kind)
        collection = self._objects.get(name)
        if collection is None:
            collection = self._objects[name] = Collection()
        return collection

    def _next_version(self, kind: ResourceKind[Any], value: Object) -> StoredObject:
        """A stored object with the version that it gets if it is stored."""
        value["metadata"]["resourceVersion"] = str(self.version + 1)
        return StoredObject(kind, value)

    def _store_object(self, new: StoredObject, before: Object | None) -> StoredObject:
        self.version += 1
        kind, meta = new.kind, new.value["metadata"]
        self._collection(kind).put(self._key(kind, meta["name"], meta.get("namespace", "")), new)
        event_type = "ADDED" if before is None else "MODIFIED"
        self.history.add(VersionedChange(self.version, collection_of(kind), event_type, new))
        self._notify_listeners(kind, before, new.value)
        return new

    def _remove_object(self, kind: ResourceKind[Any], key: Key) -> None:
        gone = self._collection(kind).pop(key)
        if gone is None:
            return
        last = self._next_version(kind, gone.value | {"metadata": dict(gone.value["metadata"])})
        self.version += 1
        self.history.add(VersionedChange(self.version, collection_of(kind), "DELETED", last))
        self._notify_listeners(kind, gone.value, None)
        uid = gone.value["metadata"]["uid"]
        for dependent in [dependent for of_kind in self._objects.values() for dependent in of_kind.owned(uid)]:
            self._collect_garbage(dependent)

    def _collect_garbage(self, stored: StoredObject) -> None:
        """Garbage collection: an object is removed with its last owner; otherwise only the reference is removed."""
        meta = stored.value["metadata"]
        kind, name, namespace = stored.kind, meta["name"], meta.get("namespace", "")
        if self.find_stored(kind, name, namespace) is None:
            return
        left = [owner for owner in meta["ownerReferences"] if self._exists(owner, namespace)]
        if left:
            self.save(
                kind, name, namespace, lambda old: apply_merge_patch(old, {"metadata": {"ownerReferences": left}})
            )
        else:
            self.mark_deleted(kind, name, namespace)

    def _exists(self, owner: Object, namespace: str) -> bool:
        """Whether an owner exists; False for kinds that are not stored."""
        for collection in self._objects.values():
            for stored in collection.all()[:1]:
                if stored.kind.kind == owner.get("kind"):
                    owner_object = collection.get((namespace if stored.kind.namespaced else "", owner["name"]))
                    return owner_object is not None and owner_object.value["metadata"]["uid"] == owner["uid"]
        return False

    def _notify_listeners(self, kind: ResourceKind[Any], before: Object | None, after: Object | None) -> None:
        for listener in list(self.listeners):
            listener(ObjectChange(kind, before, after))


def _validate_object(new: StoredObject, old: Object | None) -> None:
    """Validate against the schema and the transition rules."""
    kind, name = new.kind, new.value["metadata"]["name"]
    try:
        new.decoded(kind.type)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{kind.kind} {name} is not valid", details=str(error)) from error
    for rule in _RULES.get(kind.plural, ()) if old is not None else ():
        judge = _CHANGE_RULES.get(rule.cel)
        before, after = _value_at(old, rule.path), _value_at(new.value, rule.path)
        if judge is not None and None not in (before, after) and not judge(after, before):
            raise ConfigurationError(f"{kind.kind} {name} is not valid", details=rule.sentence)


def _is_unchanged(value: Any, patch: Any) -> bool:
    """Whether a merge patch changes nothing."""
    if not isinstance(patch, dict):
        return bool(value == patch)
    return isinstance(value, dict) and all(
        name not in value if part is None else name in value and _is_unchanged(value[name], part)
        for name, part in patch.items()
    )


def collection_of(kind: ResourceKind[Any]) -> str:
    """The name of the collection of a kind, for all its versions."""
    return f"{kind.plural}.{kind.group}"


def _identity_patch(old: Object) -> Object:
    """The server's metadata of an object, as a merge patch (None: it stays absent)."""
    return {"metadata": {name: old["metadata"].get(name) for name in SERVER_METADATA}}


def _is_held(kind: ResourceKind[Any], value: Object) -> bool:
    """Whether a deleted object remains: for its finalizers, or until the kubelet has ended the containers."""
    bound = kind == PODS and bool(value.get("spec", {}).get("nodeName"))
    running = value.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    return bool(value["metadata"].get("finalizers")) or (bound and running)


def _desired_state(value: Object) -> Object:
    return {name: part for name, part in value.items() if name not in ("metadata", "status")}


def _value_at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
