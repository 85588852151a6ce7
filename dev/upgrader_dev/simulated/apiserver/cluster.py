"""FakeCluster: the Cluster port of reconcile in memory. The contract test compares it with a real API server.

A test simulates other writers (kubelets, the Job controller, users) through `cluster.store`, directly or with
`cluster.store.listeners` and the clock; only calls of the port are recorded and can be made to fail.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec

from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.resources import PDBS, PODS, ResourceKind
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
from upgrader.core.replies import CommandResult, Reply
from upgrader.core.workloads.owner_kinds import ReadKind
from upgrader.kube.listing import Listing
from upgrader_dev.simulated.apiserver.collection import StoredObject
from upgrader_dev.simulated.apiserver.objects import (
    Object,
    apply_fields,
    apply_json_patch,
    apply_merge_patch,
    matches_label_selector,
)
from upgrader_dev.simulated.apiserver.store import SERVER_METADATA, STATUS_ON_CREATE, ObjectStore
from upgrader_dev.simulated.apiserver.watching import Pages, Watches
from upgrader_dev.simulated.cluster.ports import FakeClock

T = TypeVar("T")
R = TypeVar("R")


class Write(msgspec.Struct, frozen=True):
    """A write of the operator: create, merge, edit, apply, delete, evict or event; rehearse is a dry run."""

    verb: str
    kind: str
    name: str
    namespace: str = ""
    subresource: str = ""


class Use(msgspec.Struct, frozen=True):
    """A permission that was used, in the terms of RBAC."""

    verb: str
    group: str
    resource: str  # with its subresource: pods/exec
    namespace: str = ""


class SentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Event as it was written."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False


class RequestFault(msgspec.Struct, frozen=True):
    """A failure instead of a response; `acted`: the write is done, and only its response is lost."""

    error: BaseException
    acted: bool = False


class FakeCluster:
    """The part of the API server that the operator uses."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.store = ObjectStore(self.clock)
        self.reachable = True
        self.git_version = "v1.36.3"
        self.installed: dict[tuple[str, str], tuple[str, ...]] = {}
        """Custom resources of other projects, by group and plural: the served versions."""
        self.writes: list[Write] = []
        self.uses: set[Use] = set()
        self.events: list[SentEvent] = []
        self.logs: dict[tuple[str, str], bytes] = {}
        """Logs of containers, by names of pod and container."""
        self.files: dict[tuple[str, str], bytes | Callable[[], bytes | None]] = {}
        """Contents for read_file, by pod uid and path."""
        self.program: Callable[[Pod, Sequence[str], Mapping[str, str]], CommandResult | None] = lambda *_: (
            CommandResult(output=b"", code=127)
        )
        """The result of a command in an existing pod, by argv and environment."""
        self.server: Callable[[Pod, str, str, Any], Reply | None] = lambda *_: None
        """The response of an existing pod, by method, endpoint and body."""
        self.before_write: Callable[[Write], None] | None = None
        self.replies: dict[str, Callable[[Object], Object]] = {}
        """Kinds that are answered and not stored (reviews): from the request body to the response."""
        self.pages = Pages(self.store)
        self.watches = Watches(self.store)
        self._faults: dict[int, RequestFault] = {}
        self._applied: dict[tuple[str, str, str], Object] = {}

    def fail_at(self, write: int, error: BaseException, *, acted: bool = False) -> None:
        """Make the n-th write from now on (counted from 1) fail."""
        self._faults[len(self.writes) + write] = RequestFault(error, acted)

    # ---- reading

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        self._record_use(kind, namespace, "get")
        self._require_reachable("get", kind.path(name, namespace))
        stored = self.store.find_stored(kind, name, namespace)
        return None if stored is None else stored.decoded(kind.type)

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        self._record_use(kind, namespace, "list")
        self._require_reachable("list", kind.path(namespace=namespace))
        return list(self.store.decode(kind, namespace, labels, fields))

    async def listing(self, kind: ResourceKind[T], namespace: str = "") -> Listing[T]:
        """All objects, with the resourceVersion from which a watch can continue."""
        self._record_use(kind, namespace, "list")
        self._require_reachable("list", kind.path(namespace=namespace))
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
        """Changes since a resourceVersion as lines of JSON, with bookmarks; ends after `seconds` of virtual time."""
        self._record_use(kind, namespace, "watch")
        self._require_reachable("watch", kind.path(namespace=namespace))
        return self.watches.watch(kind, resource_version, namespace, seconds=seconds, idle_seconds=idle_seconds)

    def install(self, *kinds: ReadKind) -> None:
        """Serve custom resources of other projects, as if their definitions were applied."""
        self.installed |= {(kind.group, kind.plural): (kind.version,) for kind in kinds}

    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        self._require_reachable("get", "/apis")
        return {("batch", "jobs"): ("v1",), ("apps", "statefulsets"): ("v1",), **self.installed}

    async def version(self) -> str:
        self._require_reachable("get", "/version")
        return self.git_version

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None:  # noqa: ARG002 - a parameter of the port
        meta = pod.metadata
        self._record_use(PODS, meta.namespace, "get", "create", subresource="exec")
        self._require_reachable("exec", PODS.path(meta.name, meta.namespace, "exec"))
        if not self._exists(pod):
            return None
        content = self.files.get((meta.uid, path))
        return content() if callable(content) else content

    async def read_log(self, pod: Pod, container: str) -> bytes:
        self._record_use(PODS, pod.metadata.namespace, "get", subresource="log")
        self._require_reachable("GET", PODS.path(pod.metadata.name, pod.metadata.namespace, "log"))
        if not self._exists(pod):
            raise NotFoundError(f"pods {pod.metadata.name} does not exist")
        return self.logs.get((pod.metadata.name, container), b"")

    async def run(self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]) -> CommandResult | None:
        self._record_use(PODS, pod.metadata.namespace, "get", "create", subresource="exec")
        self._require_reachable("exec", PODS.path(pod.metadata.name, pod.metadata.namespace, "exec"))
        if not self._exists(pod) or container not in {container_spec.name for container_spec in pod.spec.containers}:
            return None
        return self.program(pod, argv, env)

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None:
        endpoints.split_endpoint(endpoint)
        verb = {"POST": "create", "GET": "get", "DELETE": "delete"}[method]
        self._record_use(PODS, pod.metadata.namespace, verb, subresource="proxy")
        self._require_reachable(method, PODS.path(pod.metadata.name, pod.metadata.namespace, "proxy"))
        if not self._exists(pod):
            raise NotFoundError(f"pods {pod.metadata.name} does not exist")
        return self.server(pod, method, endpoint, body)

    def _exists(self, pod: Pod) -> bool:
        stored = self.store.find_stored(PODS, pod.metadata.name, pod.metadata.namespace)
        return stored is not None and stored.value["metadata"]["uid"] == pod.metadata.uid

    # ---- writing

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        manifest = apply_merge_patch({}, body)
        if kind.kind in self.replies:
            self._record_use(kind, "", "create")
            self._require_reachable("create", kind.path())
            return msgspec.convert(self.replies[kind.kind](manifest), kind.type)
        if kind.plural not in STATUS_ON_CREATE:
            manifest.pop("status", None)
        if kind == PODS:
            manifest["status"] = {"phase": "Pending"}
        meta = manifest["metadata"]
        for name in set(SERVER_METADATA) - {"name", "namespace"}:
            meta.pop(name, None)
        write = Write("create", kind.kind, meta["name"], meta.get("namespace", ""))
        self._record_use(kind, write.namespace, "create")
        return self._write(write, kind, lambda: self.store.add(kind, manifest))

    async def rehearse(self, kind: ResourceKind[Any], body: Mapping[str, Any]) -> None:
        meta = body["metadata"]
        namespace = meta.get("namespace", "")
        self._record_use(kind, namespace, "create")
        self._require_reachable("rehearse", kind.path(namespace=namespace))
        if self.before_write is not None:
            self.before_write(Write("rehearse", kind.kind, meta["name"], namespace))
        with contextlib.suppress(NameTakenError):  # the real client ignores a taken name too
            self.store.check(kind, apply_merge_patch({}, body))

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        def edit(old: Object) -> Object:
            if old["metadata"]["resourceVersion"] != meta.resource_version:
                raise ConflictError("the object changed since it was read")
            return _through_subresource(subresource, old, apply_merge_patch(old, patch))

        return self._save_object("merge", kind, meta, edit, subresource)

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T:
        def edit(old: Object) -> Object:
            if old["metadata"]["uid"] != meta.uid:
                raise ConflictError("the object does not have the values that the patch expects")
            return _through_subresource(subresource, old, apply_json_patch(old, operations))

        return self._save_object("edit", kind, meta, edit, subresource)

    async def apply(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        manifest = apply_merge_patch({}, body)
        meta = manifest["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        key = (kind.plural, namespace, name)

        def act() -> StoredObject:
            if self.store.find_stored(kind, name, namespace) is None:
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

        self._record_use(kind, namespace, "create", "patch")
        return self._write(Write("apply", kind.kind, name, namespace), kind, act)

    async def delete(self, kind: ResourceKind[T], meta: ObjectMeta) -> None:
        def act() -> None:
            value = self.store.find(kind, meta.name, meta.namespace)
            if value is not None and value["metadata"]["uid"] == meta.uid:
                self.store.mark_deleted(kind, meta.name, meta.namespace)

        self._record_use(kind, meta.namespace, "delete")
        self._perform(Write("delete", kind.kind, meta.name, meta.namespace), act)

    async def evict(self, pod: ObjectMeta) -> None:
        def act() -> None:
            value = self.store.find(PODS, pod.name, pod.namespace)
            if value is None:
                raise NotFoundError(f"pods {pod.name} does not exist")
            now = (value["metadata"]["uid"], value["metadata"]["resourceVersion"])
            if now != (pod.uid, pod.resource_version):
                raise ConflictError("the object changed since it was read")
            self._check_budgets(value)
            self.store.mark_deleted(PODS, pod.name, pod.namespace)

        self._record_use(PODS, pod.namespace, "create", subresource="eviction")
        self._perform(Write("evict", "Pod", pod.name, pod.namespace, "eviction"), act)

    async def event(
        self, regarding: ObjectMeta, kind: str, api_version: str, *, reason: str, message: str, warning: bool = False
    ) -> None:
        if not api_version:
            raise ConfigurationError("an Event requires the apiVersion of its object")
        self.uses.add(Use("create", "", "events", regarding.namespace or "default"))
        self._record_write(Write("event", kind, regarding.name, regarding.namespace))
        self.events.append(SentEvent(kind=kind, name=regarding.name, reason=reason, message=message, warning=warning))

    def _check_budgets(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") != "Running":
            return  # as in the API server
        namespace = pod["metadata"]["namespace"]
        budgets = [
            budget
            for budget in self.store.copy_all(PDBS, namespace)
            if matches_label_selector(pod["metadata"].get("labels", {}), budget["spec"].get("selector", {}))
        ]
        if len(budgets) > 1:
            raise TwoBudgetsError("this pod has more than one PodDisruptionBudget")
        for budget in budgets:
            status, generation = budget.get("status", {}), budget["metadata"]["generation"]
            allowed = status.get("disruptionsAllowed", 0)
            if allowed < 1 or status.get("observedGeneration", generation) < generation:
                raise ThrottledError("the API server limits the rate of requests")
            status = {"status": {"disruptionsAllowed": allowed - 1}}
            self.store.change(PDBS, budget["metadata"]["name"], status, namespace)

    def _save_object(
        self,
        verb: str,
        kind: ResourceKind[T],
        meta: ObjectMeta,
        edit: Callable[[Object], Object],
        subresource: str,
    ) -> T:
        write = Write(verb, kind.kind, meta.name, meta.namespace, subresource)
        self._record_use(kind, meta.namespace, "patch", subresource=subresource)
        return self._write(write, kind, lambda: self.store.save(kind, meta.name, meta.namespace, edit))

    def _write(self, write: Write, kind: ResourceKind[T], act: Callable[[], StoredObject]) -> T:
        return self._perform(write, act).decoded(kind.type)

    def _perform(self, write: Write, act: Callable[[], R]) -> R:
        self._require_reachable(write.verb, f"{write.kind} {write.name}")
        if self.before_write is not None:
            self.before_write(write)
        self._record_write(write)
        fault = self._faults.pop(len(self.writes), None)
        if fault is not None and not fault.acted:
            raise fault.error
        result = act()
        if fault is not None:
            raise fault.error
        return result

    def _record_use(self, kind: ResourceKind[Any], namespace: str, *verbs: str, subresource: str = "") -> None:
        if kind.version not in self.installed.get((kind.group, kind.plural), (kind.version,)):
            raise ConfigurationError(
                "the API server does not serve this kind", details=f"{kind.api_version} {kind.plural}"
            )
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        self.uses.update(Use(verb, kind.group, resource, namespace) for verb in verbs)

    def _record_write(self, write: Write) -> None:
        self.writes.append(write)

    def _require_reachable(self, verb: str, where: str) -> None:
        if not self.reachable:
            raise UnreachableError("no response from the API server", details=f"{verb} {where}")


def _through_subresource(subresource: str, old: Object, new: Object) -> Object:
    """The status subresource changes only the status; the object itself changes everything else."""
    keep, take = (old, new) if subresource == "status" else (new, old)
    result = {name: part for name, part in keep.items() if name != "status"}
    return result | ({"status": take["status"]} if "status" in take else {})
