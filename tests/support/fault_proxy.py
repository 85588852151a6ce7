"""A proxy between a controller and its API server, with the faults of networks and of busy API servers, by a seed.

It speaks plain HTTP on loopback and passes the client's token on. Every fault is counted by its kind.
"""

import asyncio
import json
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from weakref import WeakSet

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL


class Fault(StrEnum):
    THROTTLED = "429 without Retry-After"
    WAIT = "429 with Retry-After"
    ERROR = "500"
    CONFLICT = "409"
    TIMEOUT = "no answer, and nothing was done"
    LOST = "no answer to a write that was done"
    CUT = "a watch that is cut"
    STALE = "a watch that is silent, and then expired"
    EXPIRED = "a watch of a version that is no longer known"


READS: Mapping[Fault, float] = {Fault.THROTTLED: 0.003, Fault.WAIT: 0.003, Fault.ERROR: 0.003, Fault.TIMEOUT: 0.001}
WRITES: Mapping[Fault, float] = {**READS, Fault.CONFLICT: 0.03, Fault.LOST: 0.03}
WATCHES: Mapping[Fault, float] = {Fault.CUT: 0.5, Fault.STALE: 0.2, Fault.EXPIRED: 0.2}
MOST_LINES = 20
WATCH_SECONDS = 8.0
"""A faulty watch lasts at most this long, and shows at most so many changes."""
_HOP_BY_HOP = {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"}
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


class FaultProxy:
    """Quiet until `begin`."""

    def __init__(self, server: str, trust: ssl.SSLContext, seed: int) -> None:
        self._server, self._trust = server, trust
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._session: ClientSession | None = None
        self._faulty = False
        self._watching = WeakSet[asyncio.Transport]()
        self.injected: Counter[Fault] = Counter()
        self.requests: Counter[str] = Counter()
        """Of each method, those with a fault included."""
        self.address = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FaultProxy"]:
        """On a free port of loopback, see `address`."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that gives up ends what is held for it.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        connector = TCPConnector(ssl=self._trust, limit=0)
        patience = ClientTimeout(total=None, sock_connect=10)
        async with ClientSession(connector=connector, timeout=patience) as self._session:
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    def begin(self) -> None:
        """From now on there are faults; watches that were made before, which last for minutes, are cut."""
        self._faulty = True
        for transport in self._watching:
            transport.abort()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method] += 1
        watching = request.query.get("watch") == "true"
        fault = self._drawn(request, watching=watching)
        if fault is not None:
            self.injected[fault] += 1
        if fault is Fault.TIMEOUT:
            await asyncio.Event().wait()  # until the client has had enough
        if fault in {Fault.THROTTLED, Fault.WAIT}:
            return _refused(429, {"Retry-After": "1"} if fault is Fault.WAIT else {})
        if fault in _CODES:
            return _refused(_CODES[fault])
        if watching and request.transport is not None:
            self._watching.add(request.transport)
            return await self._watch(request, fault)
        answer = await self._passed_on(request)
        if fault is Fault.LOST and request.transport is not None:
            request.transport.abort()
        return answer

    def _drawn(self, request: web.Request, *, watching: bool) -> Fault | None:
        if not self._faulty:
            return None
        chances = WATCHES if watching else READS if request.method == "GET" else WRITES
        drawn = self._random.random()
        for fault, chance in chances.items():
            drawn -= chance
            if drawn < 0:
                # A name that is not taken is not called taken, and no create has another conflict.
                return None if fault is Fault.CONFLICT and request.method == "POST" else fault
        return None

    def _sent(self, request: web.Request, body: bytes | None = None):
        assert self._session is not None
        url = URL(f"{self._server}{request.raw_path}", encoded=True)
        return self._session.request(
            request.method, url, headers=_kept(request.headers), data=body, allow_redirects=False
        )

    async def _passed_on(self, request: web.Request) -> web.Response:
        async with self._sent(request, await request.read() or None) as answer:
            return web.Response(status=answer.status, headers=_kept(answer.headers), body=await answer.read())

    async def _watch(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        async with self._sent(request) as answer:
            shown = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await shown.prepare(request)
            most = self._random.randrange(1, MOST_LINES)
            seconds = self._random.uniform(0, WATCH_SECONDS) if fault is not None else None
            try:
                async with asyncio.timeout(seconds):
                    async for line in answer.content:
                        if fault is not Fault.STALE:
                            await shown.write(line)
                            most -= 1
                        if fault is Fault.CUT and most <= 0:
                            break
            except TimeoutError:
                pass  # the fault's own time is over
            if fault is Fault.STALE:
                await shown.write(json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n")
            if fault is Fault.CUT and request.transport is not None:
                request.transport.abort()
        return shown


_CODES = {Fault.ERROR: 500, Fault.CONFLICT: 409, Fault.EXPIRED: 410}


def _refused(code: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(_status(code), status=code, headers=headers)


def _status(code: int) -> dict[str, object]:
    said = {"status": "Failure", "reason": _REASONS[code], "message": "the proxy's fault", "code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **said}


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
