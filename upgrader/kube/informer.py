"""All objects of a kind, kept in step with the API server: list, watch from there, list anew when the thread is lost.

kopf does not watch these for us: its index costs the square of their number. A watch that ends is opened again from the
last version seen, which loses nothing; only when the API server refuses that version, or does not answer, are the
objects out of step, and then snapshot() is None until they were listed again: deletions in between are seen, too.
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
"""The API server sends a bookmark about every minute; two missed ones mean that nobody is there."""
WATCH_SECONDS = 300
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0


class Meta(Protocol):
    """An object that the API server keeps."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Meta)


class Source(Protocol):
    """What is needed of KubeCluster."""

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
    """Objects of a kind; run() keeps them current until it is cancelled."""

    def __init__(
        self,
        source: Source,
        kind: ResourceKind[T],
        namespace: str = "",
        *,
        index: Callable[[T], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        """`namespace`: only objects in it; `index`: what `indexed` finds an object by, for instance a pod's node."""
        self._source, self._kind, self._namespace = source, kind, namespace
        self._decoder = msgspec.json.Decoder(kind.type)
        self._index = index or (lambda _: "")
        self._clock = clock
        self._pause = pause or _jittered
        self._objects: dict[str, T] = {}
        self._by_index: dict[str, dict[str, T]] = {}
        self._frozen: Mapping[str, T] | None = None  # copy of the objects, made when it is asked for
        self._in_step = False
        self._heard = 0.0
        self._changes = 0
        self._waiting = asyncio.Condition()

    def snapshot(self) -> Mapping[str, T] | None:
        """Objects by name, or `namespace/name`; None while out of step. The mapping does not change any more."""
        if not self._current():
            return None
        if self._frozen is None:
            self._frozen = MappingProxyType(dict(self._objects))
        return self._frozen

    def find(self, name: str, namespace: str = "") -> tuple[bool, T | None]:
        """Whether the objects are in step, and if so the one of that name."""
        return (True, self._objects.get(key_of(name, namespace))) if self._current() else (False, None)

    def indexed(self, value: str) -> Sequence[T] | None:
        """Objects whose index is this, by name; None while out of step."""
        if not self._current():
            return None
        return [each for _, each in sorted(self._by_index.get(value, {}).items())]

    @property
    def changes(self) -> int:
        """Grows whenever an object comes, goes or changes in what we read of it, and when we get in or out of step."""
        return self._changes

    async def changed(self, since: int) -> int:
        """Wait until `changes` differs from what it was, and give what it is."""
        async with self._waiting:
            await self._waiting.wait_for(lambda: self._changes != since)
            return self._changes

    async def wait(self, predicate: Callable[[Mapping[str, T]], bool]) -> Mapping[str, T]:
        """The first snapshot that satisfies the predicate."""
        while True:
            since, snapshot = self._changes, self.snapshot()
            if snapshot is not None and predicate(snapshot):
                return snapshot
            await self.changed(since)

    async def run(self) -> None:
        """List and watch for ever."""
        failures = 0
        while True:
            try:
                async for _ in self._follow():
                    failures = 0
            except (UpgraderError, msgspec.MsgspecError, RecursionError) as error:
                # Of the last one a tenant's object is guilty, nested deeper than can be read.
                log.warning("out of step", kind=self._kind.kind, error=str(error))
            await self._set_in_step(in_step=False)
            await asyncio.sleep(self._pause(failures))
            failures += 1

    def _current(self) -> bool:
        return self._in_step and self._clock() - self._heard <= IDLE_SECONDS

    async def _follow(self) -> AsyncIterator[None]:
        """One listing and the watches after it; yields whenever something was heard."""
        metrics.INFORMER_RELISTS.labels(kind=self._kind.kind).inc()
        listed = await self._source.listing(self._kind, self._namespace)
        self._objects, self._by_index = {}, {}
        for each in listed.items:
            self._keep(_key(each), each)
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
                    version = await self._take(line)
                    self._heard = self._clock()
                    yield
            if version == before and self._clock() - opened < 1.0:
                raise ClusterError(f"the API server ends every watch of {self._kind.plural} at once")

    async def _take(self, line: bytes) -> str:
        """Take in one line; gives the version that the watch has reached."""
        event = _EVENT.decode(line)
        if event.type == "BOOKMARK":
            return msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=WatchStatus)
            kind = ExpiredError if status.code == 410 else ClusterError
            raise kind(f"the watch of {self._kind.plural} ended", details=status.message)
        found = self._decoder.decode(event.object)
        before = self._objects.get(_key(found))
        after = None if event.type == "DELETED" else found
        self._keep(_key(found), after)
        if before is None or after is None or _without_version(before) != _without_version(after):
            await self._tell()
        return found.metadata.resource_version

    def _keep(self, key: str, value: T | None) -> None:
        self._frozen = None
        before = self._objects.pop(key, None)
        if before is not None:
            there = self._by_index[self._index(before)]
            del there[key]
            if not there:
                del self._by_index[self._index(before)]
        if value is not None:
            self._objects[key] = value
            self._by_index.setdefault(self._index(value), {})[key] = value

    async def _set_in_step(self, *, in_step: bool) -> None:
        self._in_step = in_step
        metrics.INFORMER_SYNCED.labels(kind=self._kind.kind).set(int(in_step))
        await self._tell()

    async def _tell(self) -> None:
        async with self._waiting:
            self._changes += 1
            self._waiting.notify_all()


def node_informer(
    source: Source, *, clock: Callable[[], float] = time.monotonic, pause: Callable[[int], float] | None = None
) -> Informer[Node]:
    """All nodes; fits ports.Nodes."""
    return Informer(source, NODES, clock=clock, pause=pause)


def key_of(name: str, namespace: str = "") -> str:
    """By what an object is found."""
    return f"{namespace}/{name}" if namespace else name


def _key(value: Meta) -> str:
    return key_of(value.metadata.name, value.metadata.namespace)


def _without_version(value: Any) -> Any:  # noqa: ANN401 - any object of the API
    """Heartbeats change nothing else that we read."""
    meta = msgspec.structs.replace(value.metadata, resource_version="")
    return msgspec.structs.replace(value, metadata=meta)


def _jittered(failures: int) -> float:
    """Seconds before the next listing, so that many controllers do not come back at once."""
    longest: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
