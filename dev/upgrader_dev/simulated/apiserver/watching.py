"""Lists page by page and watches of the fake API server, as a real one answers them."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from upgrader.api.resources import ResourceKind
from upgrader.core.errors import UnreachableError
from upgrader.kube.listing import ListMeta, Page
from upgrader.kube.refusals import ExpiredError
from upgrader_dev.simulated.apiserver.store import ObjectStore, collection_of

T = TypeVar("T")

BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""So long before a watch ends the last bookmark comes."""


class Pages:
    """Pages of lists: all pages of one list are of the version of its first."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: dict[str, tuple[int, list[Any]]] = {}

    def page(
        self, kind: ResourceKind[T], namespace: str, labels: str, fields: str, limit: int, following: str = ""
    ) -> Page[T]:
        """The first page, or the one that follows.

        Raises:
            ExpiredError: the list is of a version that is not known any more.
        """
        if following:
            version, rest = self._kept.get(following, (-1, []))
            if version < self._store.history.compacted:
                raise ExpiredError("the provided continue parameter is too old")
        else:
            found = self._store.selected(kind, namespace, labels, fields)
            version, rest = self._store.version, [each.decoded(kind.type) for each in found]
        items, left = (rest[:limit], rest[limit:]) if limit else (rest, [])
        token = base64.urlsafe_b64encode(b"%d:%d" % (version, len(left))).decode() if left else ""
        if token:
            self._kept[token] = (version, left)
        return Page(items=items, metadata=ListMeta(resource_version=str(version), continue_=token))


class Watches:
    """Open watches. `stalled` ones stay open and say nothing; `cut` ends all of them, as a lost connection does."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.stalled = False
        self._cuts = 0
        self._changed = asyncio.Event()
        store.history.listeners.append(self.wake)

    def wake(self) -> None:
        """Let open watches look at what time it is, and at what changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """End every open watch without a word."""
        self._cuts += 1
        self.wake()

    @asynccontextmanager
    async def watch(
        self, kind: ResourceKind[Any], version: str, namespace: str = "", *, seconds: float, idle_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Changes since a version, as lines; an ERROR line where that version is not known any more."""
        yield self._lines(kind, int(version), namespace, seconds, idle_seconds)

    async def _lines(
        self, kind: ResourceKind[Any], version: int, namespace: str, seconds: float, idle_seconds: float
    ) -> AsyncIterator[bytes]:
        clock, cuts = self._store.clock, self._cuts
        began = heard = bookmarked = clock.now().timestamp()
        for moment in (seconds, seconds - LAST_BOOKMARK_SECONDS, idle_seconds, BOOKMARK_SECONDS):
            clock.later(moment, self.wake)
        last_words = False
        while self._cuts == cuts:
            changed, now = self._changed, clock.now().timestamp()
            if not self.stalled:
                try:
                    news = list(self._store.history.since(version, collection_of(kind)))
                except ExpiredError as error:
                    yield _expired_line(error)
                    return
                for each in news:
                    version = each.version
                    if namespace not in {"", each.object.value["metadata"].get("namespace", "")}:
                        continue
                    heard = now
                    yield each.line
                    if self._cuts != cuts:
                        return
                ends = now >= began + seconds - LAST_BOOKMARK_SECONDS and not last_words
                if ends or now >= bookmarked + BOOKMARK_SECONDS:
                    last_words, bookmarked, heard = last_words or ends, now, now
                    clock.later(BOOKMARK_SECONDS, self.wake)
                    version = max(version, self._store.version)
                    yield _bookmark_line(kind, version)
                if now >= began + seconds:
                    return
            elif now >= heard + idle_seconds:
                raise UnreachableError("nothing comes any more", details=f"watch of {kind.plural}")
            if not changed.is_set():
                await changed.wait()


def _bookmark_line(kind: ResourceKind[Any], version: int) -> bytes:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"resourceVersion": str(version)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": body})


def _expired_line(error: ExpiredError) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": str(error)}
    return msgspec.json.encode({"type": "ERROR", "object": status})
