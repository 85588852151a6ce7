"""Paged lists and watches of the fake API server."""

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
"""The last bookmark is sent this long before a watch ends."""


class Pages:
    """Pages of lists: all pages of a list have the version of its first page."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._remaining: dict[str, tuple[int, list[Any]]] = {}

    def page(
        self, kind: ResourceKind[T], namespace: str, labels: str, fields: str, limit: int, following: str = ""
    ) -> Page[T]:
        """The first page, or the following page.

        Raises:
            ExpiredError: the version of the list is compacted.
        """
        if following:
            version, rest = self._remaining.get(following, (-1, []))
            if version < self._store.history.compacted:
                raise ExpiredError("the API server no longer has that version")
        else:
            selected = self._store.select(kind, namespace, labels, fields)
            version, rest = self._store.version, [stored.decoded(kind.type) for stored in selected]
        items, left = (rest[:limit], rest[limit:]) if limit else (rest, [])
        token = base64.urlsafe_b64encode(b"%d:%d" % (version, len(left))).decode() if left else ""
        if token:
            self._remaining[token] = (version, left)
        return Page(items=items, metadata=ListMeta(resource_version=str(version), continue_=token))


class Watches:
    """Open watches. `stalled`: they stay open and deliver nothing; `cut` ends all, as a lost connection does."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.stalled = False
        self._cuts = 0
        self._changed = asyncio.Event()
        store.history.listeners.append(self.wake)

    def wake(self) -> None:
        """Let open watches check the time and the changes."""
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """End all open watches without a last event."""
        self._cuts += 1
        self.wake()

    @asynccontextmanager
    async def watch(
        self, kind: ResourceKind[Any], version: str, namespace: str = "", *, seconds: float, idle_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Changes since a version, as lines; an ERROR line if that version is compacted."""
        yield self._lines(kind, int(version), namespace, seconds, idle_seconds)

    async def _lines(
        self, kind: ResourceKind[Any], version: int, namespace: str, seconds: float, idle_seconds: float
    ) -> AsyncIterator[bytes]:
        clock, cuts = self._store.clock, self._cuts
        began = last_event = bookmarked = clock.now().timestamp()
        for delay in (seconds, seconds - LAST_BOOKMARK_SECONDS, idle_seconds, BOOKMARK_SECONDS):
            clock.later(delay, self.wake)
        sent_last_bookmark = False
        while self._cuts == cuts:
            changed, now = self._changed, clock.now().timestamp()
            if not self.stalled:
                try:
                    changes = list(self._store.history.since(version, collection_of(kind)))
                except ExpiredError as error:
                    yield _expired_line(error)
                    return
                for change in changes:
                    version = change.version
                    if namespace not in {"", change.object.value["metadata"].get("namespace", "")}:
                        continue
                    last_event = now
                    yield change.line
                    if self._cuts != cuts:
                        return
                ends = now >= began + seconds - LAST_BOOKMARK_SECONDS and not sent_last_bookmark
                if ends or now >= bookmarked + BOOKMARK_SECONDS:
                    sent_last_bookmark, bookmarked, last_event = sent_last_bookmark or ends, now, now
                    clock.later(BOOKMARK_SECONDS, self.wake)
                    version = max(version, self._store.version)
                    yield _bookmark_line(kind, version)
                if now >= began + seconds:
                    return
            elif now >= last_event + idle_seconds:
                raise UnreachableError("the watch delivers nothing", details=f"watch of {kind.plural}")
            if not changed.is_set():
                await changed.wait()


def _bookmark_line(kind: ResourceKind[Any], version: int) -> bytes:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"resourceVersion": str(version)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": body})


def _expired_line(error: ExpiredError) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": str(error)}
    return msgspec.json.encode({"type": "ERROR", "object": status})
