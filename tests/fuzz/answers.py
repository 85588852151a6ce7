"""A registry whose answers stand in a few bytes: what a client makes of them, without a network.

Answers are divided by DIVIDER; each has a status, headers line by line, an empty line and a body.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import RegistryLogin

DIVIDER = b"\n--next--\n"
HOST = "registry.example"
LOGINS = {HOST: RegistryLogin(user="me", password="p")}  # noqa: S106 - of nobody


class Content:
    """A body that is read piece by piece."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), size):
            yield self._body[start : start + size]


class Answer(aiohttp.ClientResponse):
    """aiohttp's own reading of headers, with a body that is there."""

    def __init__(self, url: URL, data: bytes) -> None:
        head, _, self._body = data.partition(b"\n\n")
        status, *lines = head.split(b"\n")
        self.status = int(status) if status.isdigit() and len(status) == 3 else 200
        pairs = (line.decode(errors="replace").partition(":") for line in lines)
        self._headers = CIMultiDictProxy(CIMultiDict((name, value.strip()) for name, colon, value in pairs if colon))
        self._url = self._real_url = url
        self._cache: dict[str, Any] = {}
        self._closed = True
        self.content = Content(self._body)  # type: ignore[assignment]

    async def read(self) -> bytes:
        return self._body

    def release(self) -> None:
        """Nothing is held."""


class Session:
    """In the place of aiohttp's: answers in turn, the last one again and again."""

    def __init__(self, data: bytes) -> None:
        self._left = data.split(DIVIDER)

    async def request(self, _method: str, url: str, **_: object) -> Answer:
        return self._next(URL(url))

    @asynccontextmanager
    async def get(self, url: URL, **_: object) -> AsyncIterator[Answer]:
        yield self._next(url)

    @asynccontextmanager
    async def post(self, url: URL, **_: object) -> AsyncIterator[Answer]:
        yield self._next(url)

    def _next(self, url: URL) -> Answer:
        return Answer(url, self._left.pop(0) if len(self._left) > 1 else self._left[0])


def client(data: bytes) -> RegistryClient:
    """A client that gets these answers."""
    made = RegistryClient(insecure=(HOST,), logins=LOGINS)
    made._session = Session(data)  # type: ignore[assignment]
    return made


LOOP = asyncio.new_event_loop()
"""One for all runs: making a loop takes longer than reading an answer."""
