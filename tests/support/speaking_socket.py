"""A unix socket where somebody answers requests line by line, as QEMU and its guest agent do."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Answer = Callable[[dict[str, Any]], bytes]


@contextmanager
def speaking(path: Path, answer: Answer, greeting: bytes = b"") -> Iterator[list[dict[str, Any]]]:
    """Serve one connection after the other; gives the list of all requests that came."""
    heard: list[dict[str, Any]] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # it was shut down
                return
            with connection, connection.makefile("rb") as lines:
                connection.sendall(greeting)
                for line in lines:
                    heard.append(json.loads(line.rpartition(b"\xff")[2]))
                    connection.sendall(answer(heard[-1]))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def line(message: dict[str, Any]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\r\n"
