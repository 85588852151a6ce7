"""Requests over QEMU's sockets: JSON lines to the machine (QMP) or to its guest agent, with one response each.

Pure except `QemuConnection`, which owns the socket. Both protocols: https://www.qemu.org/docs/master/interop/
"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from upgrader.core.errors import DevClusterError

Message = dict[str, Any]
_PATH_BYTES = 107
_CHUNK = 65536
_SENTINEL = b"\xff"
"""Not a byte of JSON: the agent discards what precedes it, and sends one before a synchronised response."""


class SilentError(DevClusterError):
    """No response in time, or no process at the socket."""


class Messages:
    """Splits received bytes into messages: one per line."""

    def __init__(self) -> None:
        self._rest = b""

    def split_lines(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; text before a sentinel and empty lines are discarded."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            body = line.rpartition(_SENTINEL)[2].strip()
            if body:
                yield msgspec.json.decode(body, type=Message)


def make_request(command: str, arguments: Message | None = None, *, synchronised: bool = False) -> bytes:
    """A request as it is sent."""
    body = {"execute": command, **({"arguments": arguments} if arguments else {})}
    return (_SENTINEL if synchronised else b"") + msgspec.json.encode(body) + b"\n"


def returned_value(message: Message, command: str) -> Any:  # noqa: ANN401 - each command has its own
    """The value of a response.

    Raises:
        DevClusterError: the response is an error.
    """
    if "error" in message:
        raise DevClusterError(f"{command} failed", details=str(message["error"].get("desc")))
    return message["return"]


class QemuConnection:
    """A connection to one of QEMU's sockets; a context manager."""

    def __init__(self, path: Path, seconds: float) -> None:
        if len(bytes(path)) > _PATH_BYTES:
            raise DevClusterError(f"the path of a socket must not exceed {_PATH_BYTES} bytes: {path}")
        self._path = path
        self.set_timeout(seconds)
        self._messages = Messages()
        self._waiting: list[Message] = []
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._apply_timeout()
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            self._socket.close()
            raise SilentError(f"no process listens at {self._path}", details=str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def set_timeout(self, seconds: float) -> None:
        """Limit the rest of the exchange to this time, from now on."""
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def send(self, data: bytes) -> None:
        """Send a request."""
        self._apply_timeout()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise SilentError(f"{self._path} accepts no request", details=str(error)) from error

    def receive(self) -> Message:
        """The next message.

        Raises:
            SilentError: none arrives within the time of this connection.
        """
        while not self._waiting:
            self._apply_timeout()
            try:
                data = self._socket.recv(_CHUNK)
            except OSError as error:
                raise SilentError(f"no response from {self._path} within {self._seconds:g} s") from error
            if not data:
                raise SilentError(f"{self._path} was closed")
            self._waiting += self._messages.split_lines(data)
        return self._waiting.pop(0)

    def _apply_timeout(self) -> None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise SilentError(f"no response from {self._path} within {self._seconds:g} s")
        self._socket.settimeout(remaining)
