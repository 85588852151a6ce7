"""Objects as an API server keeps them: versions, generations, status apart, finalizers, owners, validation.

Nothing here is asynchronous or counted: it is the world's side. FakeCluster puts our client's side on top of it.
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
from upgrader_dev.simulated.apiserver.collection import Collection, Key, Stored
from upgrader_dev.simulated.apiserver.defaults import fill_defaults
from upgrader_dev.simulated.apiserver.history import Happened, History
from upgrader_dev.simulated.apiserver.objects import Object, apply_merge_patch, copy_value
from upgrader_dev.simulated.cluster.ports import FakeClock

T = TypeVar("T")

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
        """Create or replace an object as it is, status included; its namespace is made when it is missing.

        As `change` does, it gives the object, to be read only.
        """
        body = copy_value(manifest)
        meta = body.setdefault("metadata", {})
        namespace = meta.setdefault("namespace", "default") if kind.namespaced else ""
        if namespace and self.stored(NAMESPACES, namespace) is None:
            self.put(NAMESPACES, {"metadata": {"name": namespace}})
        if self.stored(kind, meta["name"], namespace) is not None:
            return self.save(
                kind, meta["name"], namespace, lambda old: apply_merge_patch(body, _identity_patch(old))
            ).value
        return self.add(kind, body).value

    def change(self, kind: ResourceKind[Any], name: str, patch: Object, namespace: str = "") -> Object:
        """Merge a patch into an object, status included."""
        found = self.stored(kind, name, namespace)
        if found is not None and _is_unchanged(found.value, patch):  # most of what the world writes every second
            return found.value
        return self.save(kind, name, namespace, lambda old: apply_merge_patch(old, patch)).value

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
        everything = self._collection(kind).all()
        if not namespace:
            return iter(everything)
        return (each for each in everything if each.value["metadata"].get("namespace") == namespace)

    def selected(self, kind: ResourceKind[Any], namespace: str, labels: str, fields: str) -> Sequence[Stored]:
        """The objects that label and field selectors select, to be read only."""
        return self._collection(kind).selected(namespace, labels, fields)

    def decoded(self, kind: ResourceKind[T], namespace: str, labels: str, fields: str) -> Sequence[T]:
        """As `selected`, as our client reads them."""
        return self._collection(kind).decoded(namespace, labels, fields, kind.type)

    def everything(self) -> Iterator[Stored]:
        """All objects of all kinds, to be read only."""
        return (each for name in sorted(self._objects) for each in self._objects[name].all())

    def on_node(self, node: str) -> list[Object]:
        """Pods that are bound to a node (to none: an empty name), to be read only."""
        return [each.value for each in self._collection(PODS).on_node(node)]

    def owned(self, kind: ResourceKind[Any], uid: str) -> list[Object]:
        """Objects of a kind that an object owns, to be read only."""
        return [each.value for each in self._collection(kind).owned(uid)]

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
            return self._collection(kind).values()
        return [each.value for each in self.all_stored(kind, namespace)]

    def add(self, kind: ResourceKind[Any], body: Object) -> Stored:
        """A new object; the cluster's side of its metadata is made here."""
        value = self.check(kind, body)
        value["metadata"].setdefault("uid", str(uuid.UUID(int=next(self._uids))))
        value["metadata"] |= {"generation": 1, "creationTimestamp": format_time(self.clock.now())}
        return self._keep(self._next(kind, value), None)

    def check(self, kind: ResourceKind[Any], body: Object) -> Object:
        """A new object with its defaults, as far as it may be added; nothing is kept."""
        meta = body["metadata"]
        namespace = meta.get("namespace", "") if kind.namespaced else ""
        if kind.namespaced and self.stored(NAMESPACES, namespace) is None:
            raise NotFoundError(f'namespaces "{namespace}" not found')
        if self.stored(kind, meta["name"], namespace) is not None:
            raise NameTakenError(f"{kind.kind} {meta['name']} exists already")
        new: Object = {"apiVersion": kind.api_version, "kind": kind.kind} | copy_value(body)
        new["metadata"] = {key: value for key, value in new["metadata"].items() if value is not None}
        fill_defaults(kind.plural, new)
        _validate_object(Stored(kind, new), None)
        return new

    def save(self, kind: ResourceKind[Any], name: str, namespace: str, edit: Callable[[Object], Object]) -> Stored:
        """Replace an object by an edited one, which may share parts with it: same identity, new version if anything
        changed, next generation if the wish changed; gone when the last finalizer of a deleted one goes.
        """
        found = self.stored(kind, name, namespace)
        if found is None:
            raise NotFoundError(f"{kind.kind} {name} is not there")
        old = found.value
        value: Object = apply_merge_patch(edit(old), _identity_patch(old))
        fill_defaults(kind.plural, value)
        if value == old:
            return found
        if _desired_state(value) != _desired_state(old):
            value["metadata"]["generation"] = old["metadata"]["generation"] + 1
        new = self._next(kind, value)
        _validate_object(new, old)
        held = old["metadata"].get("finalizers") or []
        if old["metadata"].get("deletionTimestamp") and set(value["metadata"].get("finalizers") or []) - set(held):
            raise ConfigurationError(
                f"{kind.kind} {name} is not valid",
                details="no new finalizers can be added if the object is being deleted",
            )
        self._keep(new, old)
        if value["metadata"].get("deletionTimestamp") and not _is_held(kind, value):
            self._drop(kind, self._key(kind, name, namespace))
        return new

    def mark_deleted(self, kind: ResourceKind[Any], name: str, namespace: str = "") -> None:
        """As DELETE does: finalizers, and kubelets of bound pods, hold the object; what it owns goes with it."""
        found = self.stored(kind, name, namespace)
        if found is None:
            raise NotFoundError(f"{kind.kind} {name} is not there")
        old = found.value
        if not _is_held(kind, old):
            self._drop(kind, self._key(kind, name, namespace))
        elif not old["metadata"].get("deletionTimestamp"):
            meta = old["metadata"] | {"deletionTimestamp": format_time(self.clock.now())}
            self._keep(self._next(kind, old | {"metadata": meta}), old)

    # ---- inside

    def _key(self, kind: ResourceKind[Any], name: str, namespace: str) -> Key:
        return (namespace if kind.namespaced else "", name)

    def _collection(self, kind: ResourceKind[Any]) -> Collection:
        name = collection_of(kind)
        found = self._objects.get(name)
        if found is None:
            found = self._objects[name] = Collection()
        return found

    def _next(self, kind: ResourceKind[Any], value: Object) -> Stored:
        """With the version that it has if it is kept."""
        value["metadata"]["resourceVersion"] = str(self.version + 1)
        return Stored(kind, value)

    def _keep(self, new: Stored, before: Object | None) -> Stored:
        self.version += 1
        kind, meta = new.kind, new.value["metadata"]
        self._collection(kind).put(self._key(kind, meta["name"], meta.get("namespace", "")), new)
        happened = "ADDED" if before is None else "MODIFIED"
        self.history.add(Happened(self.version, collection_of(kind), happened, new))
        self._tell(kind, before, new.value)
        return new

    def _drop(self, kind: ResourceKind[Any], key: Key) -> None:
        gone = self._collection(kind).pop(key)
        if gone is None:
            return
        last = self._next(kind, gone.value | {"metadata": dict(gone.value["metadata"])})
        self.version += 1
        self.history.add(Happened(self.version, collection_of(kind), "DELETED", last))
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
            self.save(
                kind, name, namespace, lambda old: apply_merge_patch(old, {"metadata": {"ownerReferences": left}})
            )
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

    def _tell(self, kind: ResourceKind[Any], before: Object | None, after: Object | None) -> None:
        for listener in list(self.listeners):
            listener(Change(kind, before, after))


def _validate_object(new: Stored, old: Object | None) -> None:
    """By the schema, and by the rules about what may become of an object."""
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
    """Whether a merge patch would change nothing."""
    if not isinstance(patch, dict):
        return bool(value == patch)
    return isinstance(value, dict) and all(
        name not in value if part is None else name in value and _is_unchanged(value[name], part)
        for name, part in patch.items()
    )


def collection_of(kind: ResourceKind[Any]) -> str:
    """Name of the collection that a kind's objects lie in, whatever version they are read in."""
    return f"{kind.plural}.{kind.group}"


def _identity_patch(old: Object) -> Object:
    """The cluster's side of an object's metadata, as a merge patch (None: it stays absent)."""
    return {"metadata": {name: old["metadata"].get(name) for name in CLUSTER_SIDE}}


def _is_held(kind: ResourceKind[Any], value: Object) -> bool:
    """Whether a deleted object stays: for its finalizers, or until the kubelet has ended the pod's containers."""
    bound = kind == PODS and bool(value.get("spec", {}).get("nodeName"))
    running = value.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    return bool(value["metadata"].get("finalizers")) or (bound and running)


def _desired_state(value: Object) -> Object:
    return {name: part for name, part in value.items() if name not in ("metadata", "status")}


def _value_at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
