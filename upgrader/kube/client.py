"""The Cluster port, implemented by requests to an API server."""

import asyncio
import copy
import functools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Self, TypeVar, cast

import msgspec

from upgrader.api.kubernetes import ObjectMeta, Pod, Wire
from upgrader.api.names import FIELD_MANAGER
from upgrader.api.resources import EVENTS, PODS, ResourceKind
from upgrader.core import endpoints, untrusted
from upgrader.core.errors import (
    ClusterError,
    ConfigurationError,
    ConflictError,
    NameTakenError,
    NotFoundError,
    TwoBudgetsError,
    UnreachableError,
)
from upgrader.core.replies import CommandResult, Reply
from upgrader.kube import events
from upgrader.kube.connect import Access, ApiServerLogin
from upgrader.kube.discovery import DISCOVERY, ApiDiscovery, served_versions
from upgrader.kube.listing import Listing, Page
from upgrader.kube.refusals import ExpiredError, is_status, response_error
from upgrader.kube.transport import JSON, Call, Transport
from upgrader.telemetry import metrics

T = TypeVar("T")

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

PAGE_SIZE = 2000
"""Objects in a page: pages are sequential, so large pages are faster. A page of real pods has about 20 MB."""
LARGEST_FILE = 1 << 20
VERSION_SECONDS = 300.0
SERVED_SECONDS = 60.0
MAX_CONCURRENT_READS = 64
"""Maximum number of concurrent execs and proxied requests, each of which is a connection through the kubelet.

One gang uses eight of them (`checkpoint.answers.AT_ONCE`), so a gang that hangs does not block others.
"""


class Version(Wire, frozen=True, kw_only=True):
    git_version: str


class KubeCluster:
    """A client for objects by REST. It is a context manager; otherwise call close()."""

    def __init__(self, login: ApiServerLogin) -> None:
        self._login = login
        self._transport = Transport(login.configuration, login.load)
        self._guard: Callable[[], None] | None = None
        self._version = ""
        self._version_until = 0.0
        self._served: Mapping[tuple[str, str], tuple[str, ...]] = {}
        self._served_until = 0.0
        self._reading = asyncio.Semaphore(MAX_CONCURRENT_READS)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Connect by a kubeconfig, found as by kubectl, or by the service account of the pod.

        Raises:
            ConfigurationError: no cluster is configured.
        """
        login = ApiServerLogin(kubeconfig, context)
        await login.load()
        return cls(login)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections."""
        await self._transport.close()

    async def access(self) -> Access:
        """Address and credentials of the connection, for the session of kopf."""
        return await self._login.access()

    def guarded(self, guard: Callable[[], None]) -> Self:
        """A client with the same connection that calls `guard` (Leadership.check) before every write; it may raise."""
        other = copy.copy(self)
        other._guard = guard  # noqa: SLF001 - a copy of this object
        return other

    # ---- reading

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        """See ports.Cluster."""
        try:
            accept = _METADATA if kind.metadata_only else JSON
            body = await self._transport.read(Call(method="GET", path=kind.path(name, namespace), accept=accept))
        except NotFoundError:
            return None
        return _decode_body(body, kind.type, f"{kind.kind} {name}")

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """See ports.Cluster."""
        return (await self.listing(kind, namespace, labels=labels, fields=fields)).items

    async def listing(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Listing[T]:
        """A list with the resourceVersion from which a watch can start."""
        try:
            return await self._read_pages(kind, namespace, labels, fields)
        except ExpiredError:  # paging took longer than the API server keeps a version: list again
            return await self._read_pages(kind, namespace, labels, fields)

    @asynccontextmanager
    async def watch(
        self,
        kind: ResourceKind[Any],
        resource_version: str,
        *,
        namespace: str = "",
        seconds: int,
        idle_seconds: float,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Changes since a version, with bookmarks, as lines of JSON; the watch ends after about `seconds`."""
        query = (
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
        )
        call = Call(method="GET", path=kind.path(namespace=namespace), query=query)
        async with self._transport.lines(call, idle_seconds) as lines:
            yield lines

    async def version(self) -> str:
        """See ports.Cluster. Cached for VERSION_SECONDS, since control planes are upgraded too."""
        if time.monotonic() >= self._version_until:
            body = await self._transport.read(Call(method="GET", path="/version"))
            self._version = _decode_body(body, Version, "version").git_version
            self._version_until = time.monotonic() + VERSION_SECONDS
        return self._version

    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """See ports.Cluster."""
        if time.monotonic() >= self._served_until:
            body = await self._transport.read(Call(method="GET", path="/apis", accept=DISCOVERY))
            self._served = served_versions(_decode_body(body, ApiDiscovery, "list of kinds"))
            self._served_until = time.monotonic() + SERVED_SECONDS
        return self._served

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None:
        """See ports.Cluster. The container needs `sh` and `cat`."""
        marker = secrets.token_hex(16)  # random, so that no file can contain it
        output = await self._exec(pod, container, ("sh", "-c", 'cat -- "$1" && printf %s "$2"', "sh", path, marker))
        return output.removesuffix(marker.encode()) if output is not None and output.endswith(marker.encode()) else None

    async def read_log(self, pod: Pod, container: str) -> bytes:
        """See ports.Cluster."""
        path = PODS.path(pod.metadata.name, pod.metadata.namespace, "log")
        query = (("container", container), ("limitBytes", str(LARGEST_FILE)))
        return await self._transport.read(Call(method="GET", path=path, query=query, accept="*/*"))

    async def run(self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]) -> CommandResult | None:
        """See ports.Cluster. The container needs `sh`."""
        marker = secrets.token_hex(16)
        variables = (f"{name}={value}" for name, value in env.items())
        # The exit code is in the output: the status of a connection that was cut may be success.
        raw = await self._exec(pod, container, ("sh", "-c", _RUN, "sh", marker, *variables, "--", *argv), acts=True)
        output, separator, code = (raw or b"").rpartition(f"\n{marker} ".encode())
        return CommandResult(output=output, code=int(code)) if separator and len(code) < 4 and code.isdigit() else None

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None:
        """See ports.Cluster. By the proxy of the API server, so no route to pods is required."""
        port, path, query = endpoints.split_endpoint(endpoint)
        where = f"{PODS.path(f'{pod.metadata.name}{port}', pod.metadata.namespace, 'proxy')}{path}"
        call = Call(method=method, path=where, query=query, body=body)
        async with self._reading:
            if method != "GET":
                self._check_guard()  # after the wait: only the leader may send requests to pods
            try:
                response = await self._transport.reply(call, LARGEST_FILE)
            except UnreachableError:
                return None
        if response is None:
            return None
        status, headers, text = response
        if status >= 400 and is_status(text):  # a response of the API server, not of the pod
            if status in (401, 403, 404):
                raise response_error(status, headers, text, call.summary)
            return None
        after = headers.get("Retry-After", "")
        return Reply(status=status, body=text, retry_after_seconds=untrusted.parse_whole(after))

    async def _exec(self, pod: Pod, container: str, command: Sequence[str], *, acts: bool = False) -> bytes | None:
        query = (
            ("container", container),
            *(("command", part) for part in command),
            *((stream, "true") for stream in ("stdout", "stderr")),
        )
        where = PODS.path(pod.metadata.name, pod.metadata.namespace, "exec")
        async with self._reading:
            if acts:
                self._check_guard()
            return await self._transport.exec_output(where, query, LARGEST_FILE)

    # ---- writing

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """See ports.Cluster."""
        return await self._write_and_decode("create", kind, _create_call(kind, body))

    async def rehearse(self, kind: ResourceKind[Any], body: Mapping[str, Any]) -> None:
        """See ports.Cluster."""
        call = _create_call(kind, body)
        try:
            await self._transport.read(msgspec.structs.replace(call, query=(*call.query, ("dryRun", "All"))))
        except NameTakenError:  # the last check of the API server: all others have passed
            return

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        """See ports.Cluster."""
        if not meta.resource_version:
            raise ValueError(f"merge of {kind.kind} {meta.name} requires the resourceVersion that was read")
        body = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": meta.resource_version}}
        return await self._patch("merge", kind, meta, body, subresource, MERGE_PATCH)

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T:
        """See ports.Cluster."""
        same = {"op": "test", "path": "/metadata/uid", "value": meta.uid}
        try:
            return await self._patch("edit", kind, meta, [same, *operations], subresource, JSON_PATCH)
        except ConfigurationError as error:
            if _NOT_APPLICABLE not in error.details:
                raise
            # The API server returns the same error for a failed `test` and for an invalid patch; these are valid.
            raise ConflictError(
                "the object does not have the values that the patch expects", details=error.details
            ) from error

    async def apply(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """See ports.Cluster."""
        meta = body["metadata"]
        path = kind.path(meta["name"], str(meta.get("namespace", "")))
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        query = (*_MANAGED, ("force", "true"))
        call = Call(method="PATCH", path=path, query=query, body=manifest, content_type=APPLY_PATCH)
        return await self._write_and_decode("apply", kind, call)

    async def delete(self, kind: ResourceKind[T], meta: ObjectMeta) -> None:
        """See ports.Cluster. Dependents are deleted in the background."""
        # Explicit, since the default for Jobs is to orphan their pods.
        options = {"propagationPolicy": "Background", "preconditions": {"uid": meta.uid}}
        call = Call(method="DELETE", path=kind.path(meta.name, meta.namespace), body=options)
        try:
            await self._write("delete", kind, call)
        except (NotFoundError, ConflictError):
            return  # a conflict means that another object has the name: this one is deleted

    async def evict(self, pod: ObjectMeta) -> None:
        """See ports.Cluster."""
        preconditions = {"uid": pod.uid, "resourceVersion": pod.resource_version}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": preconditions},
        }
        try:
            await self._write(
                "evict", PODS, Call(method="POST", path=PODS.path(pod.name, pod.namespace, "eviction"), body=eviction)
            )
        except UnreachableError as error:
            if "more than one PodDisruptionBudget" not in error.details:
                raise
            raise TwoBudgetsError("this pod has more than one PodDisruptionBudget", details=error.details) from error

    async def event(
        self, regarding: ObjectMeta, kind: str, api_version: str, *, reason: str, message: str, warning: bool = False
    ) -> None:
        """See ports.Cluster."""
        event = events.event_manifest(
            regarding,
            kind,
            api_version,
            reason=reason,
            message=message,
            warning=warning,
            now=datetime.now(UTC),
        )
        await events.post_event(event, functools.partial(self.create, EVENTS))

    # ---- inside

    async def _read_pages(self, kind: ResourceKind[T], namespace: str, labels: str, fields: str) -> Listing[T]:
        query = [("limit", str(PAGE_SIZE))]
        query += [(name, text) for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text]
        accept = _METADATA_LIST if kind.metadata_only else JSON
        items: list[T] = []
        following = ""
        while True:
            rest = (*query, ("continue", following)) if following else tuple(query)
            call = Call(method="GET", path=kind.path(namespace=namespace), query=rest, accept=accept)
            body = await self._transport.read(call)
            page = _decode_body(body, Page[kind.type], f"list of {kind.kind}")  # type: ignore[name-defined]
            items += page.items or ()
            following = page.metadata.continue_
            if not following:
                return Listing(items, page.metadata.resource_version)

    async def _patch(
        self,
        verb: str,
        kind: ResourceKind[T],
        meta: ObjectMeta,
        body: object,
        subresource: str,
        content_type: str,
    ) -> T:
        path = kind.path(meta.name, meta.namespace, subresource)
        call = Call(method="PATCH", path=path, query=_MANAGED, body=body, content_type=content_type)
        return await self._write_and_decode(verb, kind, call)

    async def _write_and_decode(self, verb: str, kind: ResourceKind[T], call: Call) -> T:
        return _decode_body(await self._write(verb, kind, call), kind.type, call.summary)

    def _check_guard(self) -> None:
        if self._guard is not None:
            self._guard()

    async def _write(self, verb: str, kind: ResourceKind[Any], call: Call) -> bytes:
        self._check_guard()
        metrics.API_WRITES.labels(verb=verb, kind=kind.kind).inc()
        return await self._transport.write(call)


_MANAGED = (("fieldManager", FIELD_MANAGER),)
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_RUN = (
    'marker=$1; shift; while [ "$1" != -- ]; do export "$1"; shift; done; shift; "$@"; printf "\\n%s %d" "$marker" "$?"'
)
_NOT_APPLICABLE = "the server rejected our request due to an error in our request"


@functools.cache
def _json_decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - generic aliases are not classes
    return msgspec.json.Decoder(type_)


def _create_call(kind: ResourceKind[Any], body: Mapping[str, Any]) -> Call:
    path = kind.path(namespace=str(body["metadata"].get("namespace", "")))
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    return Call(method="POST", path=path, query=_MANAGED, body=manifest)


def _decode_body(body: bytes, type_: type[T], subject: str) -> T:
    try:
        decoded: T = _json_decoder(cast("Any", type_)).decode(body)
    except RecursionError as error:
        raise ClusterError(
            f"{subject} cannot be read",
            details="An object is nested too deeply.",
            resolution="Find the object with kubectl by its size and delete it: no controller creates such objects.",
        ) from error
    except msgspec.MsgspecError as error:
        raise ClusterError(
            f"{subject} cannot be read",
            details=str(error),
            resolution="The object was stored by another release: apply crds/ of this release and correct the field.",
        ) from error
    return decoded
