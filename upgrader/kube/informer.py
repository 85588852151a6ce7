"""A cache of all objects of a kind, synchronized with the API server by a list and watches.

kopf is not used for it: its index has quadratic cost. A watch that ends is opened again from the last version without
loss. If the API server rejects that version or does not respond, the cache is out of sync: snapshot() returns None
until the objects were listed again, so deletions in the meantime are noticed too.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from upgrader.api.kubernetes import Node, ObjectMeta, Wire
from upgrader.api.resources import NODES, ResourceKind
from upgrader.core.errors import ClusterError, UpgraderError
from upgrader.kube.listing import Listing
from upgrader.kube.refusals import ExpiredError
from upgrader.telemetry import metrics

log = structlog.get_logger(__name__)

IDLE_SECONDS = 150.0
"""The API server sends a bookmark about every minute; after two missing ones the connection counts as broken."""
WATCH_SECONDS = 300
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0


class ApiObject(Protocol):
    """An object of the API server."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=ApiObject)


class WatchSource(Protocol):
    """The methods of KubeCluster that an informer uses."""

    async def listing(self, kind: ResourceKind[Any], namespace: str = "") -> Listing[Any]: ...
    def watch(
        self,
        kind: ResourceKind[Any],
        resource_version: str,
        *,
        namespace: str = "",
        seconds: int,
        idle_seconds: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class WatchEvent(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class Bookmark(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


class WatchStatus(Wire, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""


_EVENT = msgspec.json.Decoder(WatchEvent)


class Informer(Generic[T]):
    """The cache of a kind; run() keeps it current until it is cancelled."""

    def __init__(
        self,
        source: WatchSource,
        kind: ResourceKind[T],
        namespace: str = "",
        *,
        index: Callable[[T], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        """`namespace`: only objects in it; `index`: key of an object in `indexed`, for example the node of a pod."""
        self._source, self._kind, self._namespace = source, kind, namespace
        self._decoder = msgspec.json.Decoder(kind.type)
        self._index = index or (lambda _: "")
        self._clock = clock
        self._pause = pause or _jittered_pause
        self._objects: dict[str, T] = {}
        self._by_index: dict[str, dict[str, T]] = {}
        self._frozen: Mapping[str, T] | None = None  # copy of the objects, created on demand
        self._in_step = False
        self._heard = 0.0
        self._changes = 0
        self._waiting = asyncio.Condition()

    def snapshot(self) -> Mapping[str, T] | None:
        """Objects by name, or `namespace/name`; None while out of sync. The mapping is immutable."""
        if not self._is_current():
            return None
        if self._frozen is None:
            self._frozen = MappingProxyType(dict(self._objects))
        return self._frozen

    def find(self, name: str, namespace: str = "") -> tuple[bool, T | None]:
        """Whether the cache is in sync, and if so the object of a name, or None."""
        return (True, self._objects.get(object_key(name, namespace))) if self._is_current() else (False, None)

    def indexed(self, value: str) -> Sequence[T] | None:
        """Objects with an index key, sorted by name; None while out of sync."""
        if not self._is_current():
            return None
        return [item for _, item in sorted(self._by_index.get(value, {}).items())]

    @property
    def changes(self) -> int:
        """A counter of additions, deletions and changes of objects, in their decoded fields, and of the sync state."""
        return self._changes

    async def wait_for_change(self, since: int) -> int:
        """Wait until `changes` differs from `since`; returns its new value."""
        async with self._waiting:
            await self._waiting.wait_for(lambda: self._changes != since)
            return self._changes

    async def wait(self, predicate: Callable[[Mapping[str, T]], bool]) -> Mapping[str, T]:
        """The first snapshot that satisfies the predicate."""
        while True:
            since, snapshot = self._changes, self.snapshot()
            if snapshot is not None and predicate(snapshot):
                return snapshot
            await self.wait_for_change(since)

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            try:
                async for _ in self._follow():
                    failures = 0
            except (UpgraderError, msgspec.MsgspecError, RecursionError) as error:
                # RecursionError: an object of a tenant that is nested too deeply.
                log.warning("cache out of sync, listing again", kind=self._kind.kind, error=str(error))
            await self._set_in_step(in_step=False)
            await asyncio.sleep(self._pause(failures))
            failures += 1

    def _is_current(self) -> bool:
        return self._in_step and self._clock() - self._heard <= IDLE_SECONDS

    async def _follow(self) -> AsyncIterator[None]:
        """A list and the watches after it; yields after each received line."""
        metrics.INFORMER_RELISTS.labels(kind=self._kind.kind).inc()
        listed = await self._source.listing(self._kind, self._namespace)
        self._objects, self._by_index = {}, {}
        for item in listed.items:
            self._store(_object_key(item), item)
        version = listed.resource_version
        self._heard = self._clock()
        await self._set_in_step(in_step=True)
        yield
        while True:
            opened, before = self._clock(), version
            watching = self._source.watch(
                self._kind, version, namespace=self._namespace, seconds=WATCH_SECONDS, idle_seconds=IDLE_SECONDS
            )
            async with watching as lines:
                async for line in lines:
                    version = await self._apply_event(line)
                    self._heard = self._clock()
                    yield
            if version == before and self._clock() - opened < 1.0:
                raise ClusterError(f"the API server ends every watch of {self._kind.plural} immediately")

    async def _apply_event(self, line: bytes) -> str:
        """Apply a line of a watch to the cache; returns the resourceVersion of the watch."""
        event = _EVENT.decode(line)
        if event.type == "BOOKMARK":
            return msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=WatchStatus)
            kind = ExpiredError if status.code == 410 else ClusterError
            raise kind(f"the watch of {self._kind.plural} ended", details=status.message)
        item = self._decoder.decode(event.object)
        before = self._objects.get(_object_key(item))
        after = None if event.type == "DELETED" else item
        self._store(_object_key(item), after)
        if before is None or after is None or _without_version(before) != _without_version(after):
            await self._notify()
        return item.metadata.resource_version

    def _store(self, key: str, value: T | None) -> None:
        self._frozen = None
        before = self._objects.pop(key, None)
        if before is not None:
            entries = self._by_index[self._index(before)]
            del entries[key]
            if not entries:
                del self._by_index[self._index(before)]
        if value is not None:
            self._objects[key] = value
            self._by_index.setdefault(self._index(value), {})[key] = value

    async def _set_in_step(self, *, in_step: bool) -> None:
        self._in_step = in_step
        metrics.INFORMER_SYNCED.labels(kind=self._kind.kind).set(int(in_step))
        await self._notify()

    async def _notify(self) -> None:
        async with self._waiting:
            self._changes += 1
            self._waiting.notify_all()


def node_informer(
    source: WatchSource, *, clock: Callable[[], float] = time.monotonic, pause: Callable[[int], float] | None = None
) -> Informer[Node]:
    """An informer of all nodes, which implements ports.Nodes."""
    return Informer(source, NODES, clock=clock, pause=pause)


def object_key(name: str, namespace: str = "") -> str:
    """Key of an object in a snapshot."""
    return f"{namespace}/{name}" if namespace else name


def _object_key(value: ApiObject) -> str:
    return object_key(value.metadata.name, value.metadata.namespace)


def _without_version(value: Any) -> Any:  # noqa: ANN401 - any object of the API
    """The object without its resourceVersion: a heartbeat changes no other decoded field."""
    meta = msgspec.structs.replace(value.metadata, resource_version="")
    return msgspec.structs.replace(value, metadata=meta)


def _jittered_pause(failures: int) -> float:
    """Seconds before the next list, with jitter, so that controllers do not list at the same time."""
    longest: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
