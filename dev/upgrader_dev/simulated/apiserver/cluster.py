"""FakeCluster: reconcile's Cluster port in memory. The contract test holds it against a real API server.

A test plays the rest of the world (kubelets, Job controller, people) through `cluster.store`, at once or by
`cluster.store.listeners` and the clock; only calls of the port are logged and can be made to fail.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from upgrader.api.kubernetes import Node, ObjectMeta, Pod
from upgrader.api.resources import NODES, PDBS, PODS, ResourceKind
from upgrader.core import endpoints
from upgrader.core.errors import (
    ConfigurationError,
    ConflictError,
    NameTakenError,
    NotFoundError,
    ThrottledError,
    TwoBudgetsError,
    UnreachableError,
)
from upgrader.core.replies import Ran, Reply
from upgrader.core.workloads.owner_kinds import ReadKind
from upgrader.kube.listing import Listing
from upgrader_dev.simulated.apiserver.collection import Stored
from upgrader_dev.simulated.apiserver.objects import (
    Object,
    apply_fields,
    apply_json_patch,
    apply_merge_patch,
    selected_by,
)
from upgrader_dev.simulated.apiserver.store import CLUSTER_SIDE, STATUS_ON_CREATE, ObjectStore
from upgrader_dev.simulated.apiserver.watching import Pages, Watches
from upgrader_dev.simulated.cluster.ports import FakeClock

T = TypeVar("T")
R = TypeVar("R")


class Write(msgspec.Struct, frozen=True):
    """One write of ours: verb is create, merge, edit, apply, delete, evict or event; or rehearse, which is none."""

    verb: str
    kind: str
    name: str
    namespace: str = ""
    subresource: str = ""


class Use(msgspec.Struct, frozen=True):
    """A right that was used, in RBAC's words."""

    verb: str
    group: str
    resource: str  # with its subresource: pods/exec
    namespace: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An Event as it was written."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False


class Fault(msgspec.Struct, frozen=True):
    """What happens at a write instead of an answer; `acted`: the write was done and only its answer is lost."""

    error: BaseException
    acted: bool = False


class FakeCluster:
    """The API server as we use it."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.store = ObjectStore(self.clock)
        self.reachable = True
        self.git_version = "v1.36.3"
        self.installed: dict[tuple[str, str], tuple[str, ...]] = {}
        """Kinds of others, by group and plural: the versions that are served."""
        self.writes: list[Write] = []
        self.uses: set[Use] = set()
        self.events: list[Event] = []
        self.files: dict[tuple[str, str], bytes | Callable[[], bytes | None]] = {}
        """What read_file finds, by pod uid and path."""
        self.program: Callable[[Pod, Sequence[str], Mapping[str, str]], Ran | None] = lambda *_: Ran(
            output=b"", code=127
        )
        """What a command does in a pod that is there, by argv and variables."""
        self.server: Callable[[Pod, str, str, Any], Reply | None] = lambda *_: None
        """What a pod that is there answers, by method, endpoint and body."""
        self.before_write: Callable[[Write], None] | None = None
        self.replies: dict[str, Callable[[Object], Object]] = {}
        """Kinds that are answered and not kept (reviews): from what was posted to the answer."""
        self.pages = Pages(self.store)
        self.watches = Watches(self.store)
        self._faults: dict[int, Fault] = {}
        self._applied: dict[tuple[str, str, str], Object] = {}

    def fail_at(self, write: int, error: BaseException, *, acted: bool = False) -> None:
        """Make the n-th write from now on (counted from 1) fail."""
        self._faults[len(self.writes) + write] = Fault(error, acted)

    # ---- reading

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        self._use(kind, namespace, "get")
        self._reach("get", kind.path(name, namespace))
        found = self.store.stored(kind, name, namespace)
        return None if found is None else found.decoded(kind.type)

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        self._use(kind, namespace, "list")
        self._reach("list", kind.path(namespace=namespace))
        return list(self.store.decoded(kind, namespace, labels, fields))

    async def listing(self, kind: ResourceKind[T], namespace: str = "") -> Listing[T]:
        """All objects, with the version from which a watch may go on."""
        self._use(kind, namespace, "list")
        self._reach("list", kind.path(namespace=namespace))
        page = self.pages.page(kind, namespace, "", "", 0)
        return Listing(page.items or [], page.metadata.resource_version)

    def watch(
        self,
        kind: ResourceKind[Any],
        resource_version: str,
        *,
        namespace: str = "",
        seconds: int,
        idle_seconds: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Changes since a version as lines of JSON, bookmarks among them; it ends after `seconds` of virtual time."""
        self._use(kind, namespace, "watch")
        self._reach("watch", kind.path(namespace=namespace))
        return self.watches.watch(kind, resource_version, namespace, seconds=seconds, idle_seconds=idle_seconds)

    def install(self, *kinds: ReadKind) -> None:
        """Serve kinds of others, as if their definitions were applied."""
        self.installed |= {(kind.group, kind.plural): (kind.version,) for kind in kinds}

    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        self._reach("get", "/apis")
        return {("batch", "jobs"): ("v1",), ("apps", "statefulsets"): ("v1",), **self.installed}

    async def version(self) -> str:
        self._reach("get", "/version")
        return self.git_version

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None:  # noqa: ARG002 - one of a port
        meta = pod.metadata
        self._use(PODS, meta.namespace, "get", "create", subresource="exec")
        self._reach("exec", PODS.path(meta.name, meta.namespace, "exec"))
        if not self._runs(pod):
            return None
        found = self.files.get((meta.uid, path))
        return found() if callable(found) else found

    async def run(self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]) -> Ran | None:
        self._use(PODS, pod.metadata.namespace, "get", "create", subresource="exec")
        self._reach("exec", PODS.path(pod.metadata.name, pod.metadata.namespace, "exec"))
        if not self._runs(pod) or container not in {one.name for one in pod.spec.containers}:
            return None
        return self.program(pod, argv, env)

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None:
        endpoints.split_endpoint(endpoint)
        verb = {"POST": "create", "GET": "get", "DELETE": "delete"}[method]
        self._use(PODS, pod.metadata.namespace, verb, subresource="proxy")
        self._reach(method, PODS.path(pod.metadata.name, pod.metadata.namespace, "proxy"))
        if not self._runs(pod):
            raise NotFoundError(f"pods {pod.metadata.name} is not there")
        return self.server(pod, method, endpoint, body)

    def _runs(self, pod: Pod) -> bool:
        found = self.store.stored(PODS, pod.metadata.name, pod.metadata.namespace)
        return found is not None and found.value["metadata"]["uid"] == pod.metadata.uid

    # ---- writing

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        manifest = apply_merge_patch({}, body)
        if kind.kind in self.replies:
            self._use(kind, "", "create")
            self._reach("create", kind.path())
            return msgspec.convert(self.replies[kind.kind](manifest), kind.type)
        if kind.plural not in STATUS_ON_CREATE:
            manifest.pop("status", None)
        if kind == PODS:
            manifest["status"] = {"phase": "Pending"}
        meta = manifest["metadata"]
        for name in set(CLUSTER_SIDE) - {"name", "namespace"}:
            meta.pop(name, None)
        write = Write("create", kind.kind, meta["name"], meta.get("namespace", ""))
        self._use(kind, write.namespace, "create")
        return self._write(write, kind, lambda: self.store.add(kind, manifest))

    async def rehearse(self, kind: ResourceKind[Any], body: Mapping[str, Any]) -> None:
        meta = body["metadata"]
        namespace = meta.get("namespace", "")
        self._use(kind, namespace, "create")
        self._reach("rehearse", kind.path(namespace=namespace))
        if self.before_write is not None:
            self.before_write(Write("rehearse", kind.kind, meta["name"], namespace))
        with contextlib.suppress(NameTakenError):  # a name that is taken
            self.store.check(kind, apply_merge_patch({}, body))

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        def edit(old: Object) -> Object:
            if old["metadata"]["resourceVersion"] != meta.resource_version:
                raise ConflictError(f"{kind.kind} {meta.name} has changed since it was read")
            return _through_subresource(subresource, old, apply_merge_patch(old, patch))

        return self._save("merge", kind, meta, edit, subresource)

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T:
        def edit(old: Object) -> Object:
            if old["metadata"]["uid"] != meta.uid:
                raise ConflictError(f"{kind.kind} {meta.name} is another one of the same name")
            return _through_subresource(subresource, old, apply_json_patch(old, operations))

        return self._save("edit", kind, meta, edit, subresource)

    async def apply(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        manifest = apply_merge_patch({}, body)
        meta = manifest["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        key = (kind.plural, namespace, name)

        def act() -> Stored:
            if self.store.stored(kind, name, namespace) is None:
                result = self.store.add(kind, manifest)
            else:
                previous = self._applied.get(key, {})
                result = self.store.save(
                    kind,
                    name,
                    namespace,
                    lambda old: _through_subresource("", old, apply_fields(old, previous, manifest)),
                )
            self._applied[key] = manifest
            return result

        self._use(kind, namespace, "create", "patch")
        return self._write(Write("apply", kind.kind, name, namespace), kind, act)

    async def delete(self, kind: ResourceKind[T], meta: ObjectMeta) -> None:
        def act() -> None:
            found = self.store.find(kind, meta.name, meta.namespace)
            if found is not None and found["metadata"]["uid"] == meta.uid:
                self.store.mark_deleted(kind, meta.name, meta.namespace)

        self._use(kind, meta.namespace, "delete")
        self._do(Write("delete", kind.kind, meta.name, meta.namespace), act)

    async def evict(self, pod: ObjectMeta) -> None:
        def act() -> None:
            found = self.store.find(PODS, pod.name, pod.namespace)
            if found is None:
                raise NotFoundError(f"Pod {pod.name} is not there")
            now = (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
            if now != (pod.uid, pod.resource_version):
                raise ConflictError(f"Pod {pod.name} has changed since it was read")
            self._ask_budgets(found)
            self.store.mark_deleted(PODS, pod.name, pod.namespace)

        self._use(PODS, pod.namespace, "create", subresource="eviction")
        self._do(Write("evict", "Pod", pod.name, pod.namespace, "eviction"), act)

    async def event(
        self, regarding: ObjectMeta, kind: str, api_version: str, *, reason: str, message: str, warning: bool = False
    ) -> None:
        if not api_version:
            raise ConfigurationError("an Event says which object it is about")
        self.uses.add(Use("create", "", "events", regarding.namespace or "default"))
        self._log(Write("event", kind, regarding.name, regarding.namespace))
        self.events.append(Event(kind=kind, name=regarding.name, reason=reason, message=message, warning=warning))

    # ---- inside

    def _ask_budgets(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") != "Running":
            return  # as the API server: budgets are about pods that run
        namespace = pod["metadata"]["namespace"]
        budgets = [
            budget
            for budget in self.store.all(PDBS, namespace)
            if selected_by(pod["metadata"].get("labels", {}), budget["spec"].get("selector", {}))
        ]
        if len(budgets) > 1:
            raise TwoBudgetsError("this pod has more than one PodDisruptionBudget")
        for budget in budgets:
            status, generation = budget.get("status", {}), budget["metadata"]["generation"]
            allowed = status.get("disruptionsAllowed", 0)
            if allowed < 1 or status.get("observedGeneration", generation) < generation:
                raise ThrottledError("the eviction would violate the pod's disruption budget")
            status = {"status": {"disruptionsAllowed": allowed - 1}}
            self.store.change(PDBS, budget["metadata"]["name"], status, namespace)

    def _save(
        self,
        verb: str,
        kind: ResourceKind[T],
        meta: ObjectMeta,
        edit: Callable[[Object], Object],
        subresource: str,
    ) -> T:
        write = Write(verb, kind.kind, meta.name, meta.namespace, subresource)
        self._use(kind, meta.namespace, "patch", subresource=subresource)
        return self._write(write, kind, lambda: self.store.save(kind, meta.name, meta.namespace, edit))

    def _write(self, write: Write, kind: ResourceKind[T], act: Callable[[], Stored]) -> T:
        return self._do(write, act).decoded(kind.type)

    def _do(self, write: Write, act: Callable[[], R]) -> R:
        self._reach(write.verb, f"{write.kind} {write.name}")
        if self.before_write is not None:
            self.before_write(write)
        self._log(write)
        fault = self._faults.pop(len(self.writes), None)
        if fault is not None and not fault.acted:
            raise fault.error
        result = act()
        if fault is not None:
            raise fault.error
        return result

    def _use(self, kind: ResourceKind[Any], namespace: str, *verbs: str, subresource: str = "") -> None:
        if kind.version not in self.installed.get((kind.group, kind.plural), (kind.version,)):
            raise ConfigurationError(f"{kind.api_version} {kind.kind}: the API server does not serve this kind")
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        self.uses.update(Use(verb, kind.group, resource, namespace) for verb in verbs)

    def _log(self, write: Write) -> None:
        self.writes.append(write)

    def _reach(self, verb: str, where: str) -> None:
        if not self.reachable:
            raise UnreachableError("no answer from the API server", details=f"{verb} {where}")


class FarCluster(FakeCluster):
    """As one behind a network: an answer takes a moment, and a write several, in which other steps go on."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        await asyncio.sleep(0)
        return await super().get(kind, name, namespace)

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        await asyncio.sleep(0)
        return await super().list(kind, namespace, labels=labels, fields=fields)

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().merge(kind, meta, patch, subresource)


class FakeNodes:
    """The Nodes port on the fake's store; `synced` plays the cache falling behind."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.synced = True

    def snapshot(self) -> Mapping[str, Node] | None:
        if not self.synced:
            return None
        nodes = self._cluster.store.decoded(NODES, "", "", "")
        return MappingProxyType({node.metadata.name: node for node in nodes})


def _through_subresource(subresource: str, old: Object, new: Object) -> Object:
    """The status subresource changes status only, the object itself everything else."""
    keep, take = (old, new) if subresource == "status" else (new, old)
    result = {name: part for name, part in keep.items() if name != "status"}
    return result | ({"status": take["status"]} if "status" in take else {})
