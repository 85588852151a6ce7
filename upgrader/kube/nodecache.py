"""All nodes, kept in step with the API server: list, watch from there, list anew when the thread is lost.

kopf does not watch nodes for us: its index costs the square of their number. A watch that ends is opened again from the
last version seen, which loses nothing; only when the API server refuses that version, or does not answer, are the nodes
out of step, and then snapshot() is None until they were listed again, so that deletions in between are seen too.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Protocol

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


class Source(Protocol):
    """What is needed of KubeCluster."""

    async def listing(self, kind: ResourceKind[Node]) -> Listing[Node]: ...
    def watch(
        self, kind: ResourceKind[Any], resource_version: str, *, seconds: int, idle_seconds: float
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
_NODE = msgspec.json.Decoder(Node)


class NodeCache:
    """The Nodes port; run() keeps it current until it is cancelled."""

    def __init__(
        self,
        source: Source,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._pause = pause or _jittered
        self._nodes: dict[str, Node] = {}
        self._frozen: Mapping[str, Node] | None = None  # copy of the nodes, made when it is asked for
        self._in_step = False
        self._heard = 0.0
        self._changes = 0
        self._waiting = asyncio.Condition()

    def snapshot(self) -> Mapping[str, Node] | None:
        """See ports.Nodes. The mapping does not change any more."""
        if not self._in_step or self._clock() - self._heard > IDLE_SECONDS:
            return None
        if self._frozen is None:
            self._frozen = MappingProxyType(dict(self._nodes))
        return self._frozen

    @property
    def changes(self) -> int:
        """Grows whenever a node comes, goes or changes in what we read of it, and when we get in or out of step."""
        return self._changes

    async def changed(self, since: int) -> int:
        """Wait until `changes` differs from what it was, and give what it is."""
        async with self._waiting:
            await self._waiting.wait_for(lambda: self._changes != since)
            return self._changes

    async def wait(self, predicate: Callable[[Mapping[str, Node]], bool]) -> Mapping[str, Node]:
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
            except (UpgraderError, msgspec.MsgspecError) as error:
                log.warning("nodes out of step", error=str(error))
            await self._set_in_step(in_step=False)
            await asyncio.sleep(self._pause(failures))
            failures += 1

    async def _follow(self) -> AsyncIterator[None]:
        """One listing and the watches after it; yields whenever something was heard."""
        metrics.NODE_CACHE_RELISTS.inc()
        listed = await self._source.listing(NODES)
        self._nodes = {node.metadata.name: node for node in listed.items}
        self._frozen = None
        version = listed.resource_version
        self._heard = self._clock()
        await self._set_in_step(in_step=True)
        yield
        while True:
            opened, before = self._clock(), version
            watching = self._source.watch(NODES, version, seconds=WATCH_SECONDS, idle_seconds=IDLE_SECONDS)
            async with watching as lines:
                async for line in lines:
                    version = await self._take(line)
                    self._heard = self._clock()
                    yield
            if version == before and self._clock() - opened < 1.0:
                raise ClusterError("the API server ends every watch of nodes at once")

    async def _take(self, line: bytes) -> str:
        """Take in one line; gives the version that the watch has reached."""
        event = _EVENT.decode(line)
        if event.type == "BOOKMARK":
            return msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=WatchStatus)
            kind = ExpiredError if status.code == 410 else ClusterError
            raise kind("the watch of nodes ended", details=status.message)
        node = _NODE.decode(event.object)
        await self._set(node.metadata.name, None if event.type == "DELETED" else node)
        return node.metadata.resource_version

    async def _set(self, name: str, node: Node | None) -> None:
        before = self._nodes.get(name)
        self._frozen = None
        if node is not None:
            self._nodes[name] = node
        else:
            self._nodes.pop(name, None)
        if _without_version(before) != _without_version(node):
            await self._tell()

    async def _set_in_step(self, *, in_step: bool) -> None:
        self._in_step = in_step
        metrics.NODE_CACHE_SYNCED.set(int(in_step))
        await self._tell()

    async def _tell(self) -> None:
        async with self._waiting:
            self._changes += 1
            self._waiting.notify_all()


def _without_version(node: Node | None) -> Node | None:
    """Heartbeats change nothing else that we read."""
    if node is None:
        return None
    meta = msgspec.structs.replace(node.metadata, resource_version="")
    return msgspec.structs.replace(node, metadata=meta)


def _jittered(failures: int) -> float:
    """Seconds before the next listing, so that many controllers do not come back at once."""
    longest: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
