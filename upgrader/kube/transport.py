"""Requests with timeouts, raw bodies and typed errors; only requests that have no effect are retried.

Session, TLS, proxies and credentials are those of kubernetes.aio. Its models are not used, since they take 20 times the
CPU time of decoding the few required fields.
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
from upgrader.kube.refusals import RefusedError, response_error

REQUEST_SECONDS = 10.0
"""Timeout of a request. It is part of the timing of the lease, see lease.py."""

JSON = "application/json"
_LONGEST_RETRY_AFTER = 5.0
_TLS_CLOSE_SECONDS = 0.25


class Call(Struct, frozen=True, kw_only=True):
    """A request before it has an address and credentials."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def summary(self) -> str:
        """Verb and path, for errors."""
        return f"{self.method} {self.path}"


class Transport:
    """A session with an API server. `relogin` refreshes the configuration after a 401."""

    def __init__(self, configuration: Any, relogin: Callable[[], Awaitable[None]]) -> None:  # noqa: ANN401 - untyped package
        self._relogin = relogin
        configuration.trace_configs = [_no_redirects()]
        configuration.client_session_kwargs = session_settings(configuration.host, configuration.proxy)
        self._client: Any = ApiClient(configuration)
        self._client.user_agent = f"gpu-upgrader/{__version__}"
        self._sockets: Any = WsApiClient(configuration)
        self._sockets.user_agent = self._client.user_agent
        self._has_aborted = False  # whether TLS may still be closing an aborted connection

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()
        await self._sockets.close()
        if self._has_aborted:
            await asyncio.sleep(_TLS_CLOSE_SECONDS)

    async def read(self, call: Call) -> bytes:
        """Send a request without effect. It is retried if the connection was refused, or after a Retry-After header."""
        trying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_is_retryable),
            wait=_retry_pause,
            stop=tenacity.stop_after_attempt(4),
            reraise=True,
        )
        return await trying(self.write, call)

    async def write(self, call: Call) -> bytes:
        """Send a request once. After an UnreachableError it is unknown whether the request was executed.

        Raises:
            UpgraderError: as in refusals.response_error(); UnreachableError if no response arrived in time.
        """
        try:
            async with self._checked_response(call, aiohttp.ClientTimeout(total=REQUEST_SECONDS)) as response:
                with _map_connection_errors(call.summary):
                    return bytes(await response.read())
        except UnreachableError:
            self._has_aborted = True
            raise

    @asynccontextmanager
    async def lines(self, call: Call, idle_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a response (a watch); raises UnreachableError if none arrives for `idle_seconds`."""
        patience = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=idle_seconds)
        self._has_aborted = True
        async with self._checked_response(call, patience) as response:
            yield _read_lines(response, call.summary)

    async def exec_output(self, path: str, query: tuple[tuple[str, str], ...], limit: int) -> bytes | None:
        """Standard output of a command by exec, as far as received; None if it was not run or the output is too long.

        The output may be incomplete: a kubelet that restarts cuts the connection and may report success.
        """
        self._has_aborted = True
        _, url, headers, _, _ = await self._client.param_serialize("GET", path, auth_settings=["BearerToken"])
        output = bytearray()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                opening = await self._sockets.request(
                    "GET", url, query_params=list(query), headers=headers, _preload_content=False
                )
                async with opening as socket:
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\x01":
                            output += message.data[1:]
                        if len(output) > limit:
                            return None
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise response_error(error.status, {}, error.message.encode(), f"EXEC {path}") from error
            return None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return bytes(output)

    async def reply(self, call: Call, limit: int) -> tuple[int, Mapping[str, str], bytes] | None:
        """Any response by the proxy of the API server: status, headers, body; None if the body is too long.

        Raises:
            UnreachableError: no response arrived in time.
        """
        self._has_aborted = True
        body = bytearray()
        async with self._open_response(call, aiohttp.ClientTimeout(total=REQUEST_SECONDS)) as response:
            with _map_connection_errors(call.summary):
                async for part in response.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > limit:
                        return None
            return response.status, response.headers, bytes(body)

    @asynccontextmanager
    async def _open_response(self, call: Call, patience: aiohttp.ClientTimeout) -> AsyncIterator[Any]:
        """The raw response to a call; its body is not read."""
        raw = await self._send(call, patience)
        if raw.status == 401:
            raw.release()
            await self._relogin()
            raw = await self._send(call, patience)
        try:
            yield raw
        finally:
            _release_connection(raw)

    @asynccontextmanager
    async def _checked_response(self, call: Call, patience: aiohttp.ClientTimeout) -> AsyncIterator[Any]:
        """The raw response to a successful call; its body is not read."""
        async with self._open_response(call, patience) as raw:
            if not 200 <= raw.status < 300:
                with _map_connection_errors(call.summary):
                    body = bytes(await raw.read())
                raise response_error(raw.status, raw.headers, body, call.summary)
            yield raw

    async def _send(self, call: Call, patience: aiohttp.ClientTimeout) -> Any:  # noqa: ANN401 - untyped package
        method, url, headers, body, _ = await self._client.param_serialize(
            call.method,
            _encode_path(call.path),
            query_params=list(call.query),
            header_params={"Accept": call.accept, "Content-Type": call.content_type},
            body=msgspec.to_builtins(call.body),
            auth_settings=["BearerToken"],
        )
        with _map_connection_errors(call.summary):
            # Already encoded: parsing the text would resolve `..`, which changes the request.
            address = URL(url, encoded=True)
            result = await self._client.call_api(method, address, headers, body, _request_timeout=patience)
        return result.response


def _encode_path(path: str) -> str:
    """A path as it is sent.

    Raises:
        ConfigurationError: the path would be resolved to another path.
    """
    parts = path.removeprefix("/").removesuffix("/").split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise ConfigurationError(
            f"{path[:200]!r} is not a path of an object",
            resolution="Names contain no '/', and are neither '.' nor '..'.",
        )
    return quote(path, safe="/:@!$&'()*+,;=~")


class RedirectedError(aiohttp.ClientError):
    """The response is a redirect."""


def _no_redirects() -> aiohttp.TraceConfig:
    """Reject redirects: a pod behind the proxy could redirect to any object, with the credentials of the operator."""

    async def refuse(*_: object) -> None:
        raise RedirectedError("the response is a redirect, which is never followed")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


def _release_connection(response: Any) -> None:  # noqa: ANN401 - untyped package
    """Release the connection; one with an incomplete response (a watch) is aborted, since closing TLS would wait."""
    connection = response.connection
    if connection is not None and connection.transport is not None and not response.content.at_eof():
        connection.transport.abort()
    response.release()


async def _read_lines(response: Any, request: str) -> AsyncIterator[bytes]:  # noqa: ANN401 - untyped package
    with _map_connection_errors(request):
        async for line in response.content:
            yield line


@contextmanager
def _map_connection_errors(request: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        refused = isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED
        kind = RefusedError if refused else UnreachableError
        cause = str(error) or type(error).__name__
        raise kind("no response from the API server", details=f"{request}: {cause}") from error


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, ThrottledError):
        return error.retry_after is not None and error.retry_after <= _LONGEST_RETRY_AFTER
    return isinstance(error, RefusedError)


def _retry_pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, ThrottledError) and error.retry_after is not None:
        return error.retry_after
    return tenacity.wait_random_exponential(multiplier=0.1, max=1.0)(state)
