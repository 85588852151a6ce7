"""Requests over QEMU's sockets: JSON lines to the machine itself (QMP) or to the agent inside it, an answer for each.

Pure but for `Line`, which owns the socket. Both protocols: https://www.qemu.org/docs/master/interop/
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
"""No byte of JSON: the agent drops what came before it, and sends one before an answer that was asked for so."""


class SilentError(DevClusterError):
    """Nobody answered in time, or nobody is there."""


class Messages:
    """Bytes as they come, as messages: one per line."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; what was cut off by a sentinel or is no JSON object is left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            said = line.rpartition(_SENTINEL)[2].strip()
            if said:
                yield msgspec.json.decode(said, type=Message)


def make_request(command: str, arguments: Message | None = None, *, synchronised: bool = False) -> bytes:
    """A request as it is sent."""
    body = {"execute": command, **({"arguments": arguments} if arguments else {})}
    return (_SENTINEL if synchronised else b"") + msgspec.json.encode(body) + b"\n"


def returned_value(message: Message, command: str) -> Any:  # noqa: ANN401 - each command has its own
    """What an answer holds.

    Raises:
        DevClusterError: it is a refusal.
    """
    if "error" in message:
        raise DevClusterError(f"{command} was refused", details=str(message["error"].get("desc")))
    return message["return"]


class Line:
    """A connection to one of QEMU's sockets; a context manager."""

    def __init__(self, path: Path, seconds: float) -> None:
        if len(bytes(path)) > _PATH_BYTES:
            raise DevClusterError(f"the path of a socket has at most {_PATH_BYTES} bytes, and this is longer: {path}")
        self._path = path
        self.allow(seconds)
        self._messages = Messages()
        self._waiting: list[Message] = []
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._limit()
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            self._socket.close()
            raise SilentError(f"nobody is at {self._path}", details=str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def allow(self, seconds: float) -> None:
        """From now on, so long may the rest of the exchange take."""
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def send(self, data: bytes) -> None:
        """Send a request."""
        self._limit()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise SilentError(f"{self._path} takes no request", details=str(error)) from error

    def receive(self) -> Message:
        """The next message.

        Raises:
            SilentError: none comes within the time of this line.
        """
        while not self._waiting:
            self._limit()
            try:
                data = self._socket.recv(_CHUNK)
            except OSError as error:
                raise SilentError(f"no answer from {self._path} within {self._seconds:g} s") from error
            if not data:
                raise SilentError(f"{self._path} was closed")
            self._waiting += self._messages.take(data)
        return self._waiting.pop(0)

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise SilentError(f"no answer from {self._path} within {self._seconds:g} s")
        self._socket.settimeout(left)
