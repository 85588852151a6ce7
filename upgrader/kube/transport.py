"""The wire: requests with time-outs, raw bodies, our errors; retries only where nothing can have happened twice.

kubernetes.aio gives the session, TLS, proxies and credentials; its models are not used, since they cost 20 times the
CPU of decoding the few fields that we read.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import tenacity
from kubernetes.aio.client import ApiClient
from kubernetes.aio.stream import WsApiClient
from msgspec import Struct
from yarl import URL

from upgrader import __version__
from upgrader.core.errors import ConfigurationError, ThrottledError, UnreachableError
from upgrader.kube.proxies import session_settings
from upgrader.kube.refusals import RefusedError, refusal

REQUEST_SECONDS = 10.0
"""Longest that a request may take: shorter than a lease's hand-over, see lease.py."""

JSON = "application/json"
_LONGEST_RETRY_AFTER = 5.0
_FAREWELL_SECONDS = 0.25


class Call(Struct, frozen=True, kw_only=True):
    """A request before it has an address and credentials."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def asked(self) -> str:
        """For errors: verb and path."""
        return f"{self.method} {self.path}"


class Transport:
    """One session with one API server. `relogin` refreshes the configuration after a 401."""

    def __init__(self, configuration: Any, relogin: Callable[[], Awaitable[None]]) -> None:  # noqa: ANN401 - untyped package
        self._relogin = relogin
        configuration.trace_configs = [_no_redirects()]
        configuration.client_session_kwargs = session_settings(configuration.host, configuration.proxy)
        self._client: Any = ApiClient(configuration)
        self._client.user_agent = f"gpu-upgrader/{__version__}"
        self._sockets: Any = WsApiClient(configuration)
        self._sockets.user_agent = self._client.user_agent
        self._farewells = False  # whether TLS may still be saying goodbye on a connection that was broken off

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()
        await self._sockets.close()
        if self._farewells:
            await asyncio.sleep(_FAREWELL_SECONDS)

    async def read(self, call: Call) -> bytes:
        """A request that changes nothing: tried again when nobody listens and when the API server says when to."""
        trying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_worth_another_try),
            wait=_pause,
            stop=tenacity.stop_after_attempt(4),
            reraise=True,
        )
        return await trying(self.write, call)

    async def write(self, call: Call) -> bytes:
        """A request that is sent once: after an error that is no refusal it may or may not have been done.

        Raises:
            UpgraderError: as refusals.refusal() says; UnreachableError when no answer came in time.
        """
        try:
            async with self._answer(call, aiohttp.ClientTimeout(total=REQUEST_SECONDS)) as response:
                with _silence_is_unreachable(call.asked):
                    return bytes(await response.read())
        except UnreachableError:
            self._farewells = True
            raise

    @asynccontextmanager
    async def lines(self, call: Call, idle_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer line by line (a watch); UnreachableError when nothing comes for `idle_seconds`."""
        patience = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=idle_seconds)
        self._farewells = True
        async with self._answer(call, patience) as response:
            yield _lines(response, call.asked)

    async def output(self, path: str, query: tuple[tuple[str, str], ...], limit: int) -> bytes | None:
        """Standard output of a command run by exec, as far as it came; None when it was not run or said too much.

        That it is whole cannot be seen here: a kubelet that restarts cuts the channel and may report success.
        """
        self._farewells = True
        _, url, headers, _, _ = await self._client.param_serialize("GET", path, auth_settings=["BearerToken"])
        said = bytearray()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                opening = await self._sockets.request(
                    "GET", url, query_params=list(query), headers=headers, _preload_content=False
                )
                async with opening as socket:
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\x01":
                            said += message.data[1:]
                        if len(said) > limit:
                            return None
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise refusal(error.status, {}, error.message.encode(), f"EXEC {path}") from error
            return None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return bytes(said)

    async def reply(self, call: Call, limit: int) -> tuple[int, Mapping[str, str], bytes] | None:
        """Whatever a pod answers through the API server: status, headers, body; None when that is too much.

        Raises:
            UnreachableError: no answer came in time.
        """
        self._farewells = True
        body = bytearray()
        async with self._opened(call, aiohttp.ClientTimeout(total=REQUEST_SECONDS)) as response:
            with _silence_is_unreachable(call.asked):
                async for part in response.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > limit:
                        return None
            return response.status, response.headers, bytes(body)

    @asynccontextmanager
    async def _opened(self, call: Call, patience: aiohttp.ClientTimeout) -> AsyncIterator[Any]:
        """The raw response to a call, body unread."""
        raw = await self._send(call, patience)
        if raw.status == 401:
            raw.release()
            await self._relogin()
            raw = await self._send(call, patience)
        try:
            yield raw
        finally:
            _let_go(raw)

    @asynccontextmanager
    async def _answer(self, call: Call, patience: aiohttp.ClientTimeout) -> AsyncIterator[Any]:
        """The raw response to a call that was accepted, body unread."""
        async with self._opened(call, patience) as raw:
            if not 200 <= raw.status < 300:
                with _silence_is_unreachable(call.asked):
                    body = bytes(await raw.read())
                raise refusal(raw.status, raw.headers, body, call.asked)
            yield raw

    async def _send(self, call: Call, patience: aiohttp.ClientTimeout) -> Any:  # noqa: ANN401 - untyped package
        method, url, headers, body, _ = await self._client.param_serialize(
            call.method,
            _encoded(call.path),
            query_params=list(call.query),
            header_params={"Accept": call.accept, "Content-Type": call.content_type},
            body=msgspec.to_builtins(call.body),
            auth_settings=["BearerToken"],
        )
        with _silence_is_unreachable(call.asked):
            # As it is: a URL that is made from text would resolve `..`, and so be another request than was looked at.
            whole = URL(url, encoded=True)
            answer = await self._client.call_api(method, whole, headers, body, _request_timeout=patience)
        return answer.response


def _encoded(path: str) -> str:
    """A path as it is sent.

    Raises:
        ConfigurationError: it would lead elsewhere than it says.
    """
    parts = path.removeprefix("/").removesuffix("/").split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise ConfigurationError(
            f"{path[:200]!r} is no path of an object", resolution="Names contain no '/', and are neither '.' nor '..'."
        )
    return quote(path, safe="/:@!$&'()*+,;=~")


class RedirectedError(aiohttp.ClientError):
    """Somebody wants us to go elsewhere, with our credentials."""


def _no_redirects() -> aiohttp.TraceConfig:
    """A pod behind the API server's proxy could else send us, as ourselves, to any object of the API server."""

    async def refuse(*_: object) -> None:
        raise RedirectedError("the answer was a redirect, which is never followed")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


def _let_go(response: Any) -> None:  # noqa: ANN401 - untyped package
    """Back into the pool; an answer that is still coming (a watch) is cut off, TLS would wait for the other side."""
    connection = response.connection
    if connection is not None and connection.transport is not None and not response.content.at_eof():
        connection.transport.abort()
    response.release()


async def _lines(response: Any, asked: str) -> AsyncIterator[bytes]:  # noqa: ANN401 - untyped package
    with _silence_is_unreachable(asked):
        async for line in response.content:
            yield line


@contextmanager
def _silence_is_unreachable(asked: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        refused = isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED
        kind = RefusedError if refused else UnreachableError
        why = str(error) or type(error).__name__
        raise kind("no answer from the API server", details=f"{asked}: {why}") from error


def _worth_another_try(error: BaseException) -> bool:
    if isinstance(error, ThrottledError):
        return error.retry_after is not None and error.retry_after <= _LONGEST_RETRY_AFTER
    return isinstance(error, RefusedError)


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, ThrottledError) and error.retry_after is not None:
        return error.retry_after
    return tenacity.wait_random_exponential(multiplier=0.1, max=1.0)(state)
