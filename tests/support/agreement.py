"""MAX among processes without torch: a hub in the test, and what a process connects to it with.

It behaves as a collective does: it answers when all have come, and fails for all when one is gone.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

HUB = "AGREEMENT_HUB"
"""Environment variable with the hub's port."""


@contextlib.contextmanager
def hub(processes: int) -> Iterator[int]:
    """A port at which so many processes agree, until the block ends or one of them is gone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, processes))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)  # ends an accept that still waits
            thread.join()


def _serve(server: socket.socket, processes: int) -> None:
    with contextlib.ExitStack() as stack:
        try:
            files = [stack.enter_context(server.accept()[0]).makefile("rw") for _ in range(processes)]
            while True:
                numbers = [int(file.readline()) for file in files]
                for file in files:
                    file.write(f"{max(numbers)}\n")
                    file.flush()
        except (OSError, ValueError):
            return  # one is gone (an empty line is no number), or the test is over: closing tells the others


def connected() -> Callable[[int], int]:
    """The agreement, from inside a process.

    Raises:
        RuntimeError: another process is gone (torch.distributed raises the same).
    """
    file = socket.create_connection(("127.0.0.1", int(os.environ[HUB]))).makefile("rw")

    def agree(number: int) -> int:
        try:
            file.write(f"{int(number)}\n")
            file.flush()
            return int(file.readline())
        except (OSError, ValueError) as error:
            raise RuntimeError("a peer is gone") from error

    return agree
