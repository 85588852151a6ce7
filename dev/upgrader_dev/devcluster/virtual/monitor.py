"""Access to the machine from outside: QEMU's monitor (QMP), which suspends, continues or ends it."""

from pathlib import Path
from typing import Any, Self

from upgrader_dev.devcluster.virtual.json_lines import Message, QemuConnection, make_request, returned_value

SECONDS = 10.0


class Monitor:
    """A connection to one QEMU, which accepts one at a time: others wait. A context manager."""

    def __init__(self, path: Path, seconds: float = SECONDS) -> None:
        self._line = QemuConnection(path, seconds)
        self._events: list[str] = []

    def __enter__(self) -> Self:
        self._line.__enter__()
        try:
            self._line.receive()  # the greeting
            self.run_command("qmp_capabilities")
        except BaseException:
            self._line.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    def run_command(self, command: str, arguments: Message | None = None) -> Any:  # noqa: ANN401 - each command has its own
        """The result of a command; events that arrive before it are stored.

        Raises:
            DevClusterError: the command fails, or (SilentError) there is no response.
        """
        self._line.send(make_request(command, arguments))
        while True:
            message = self._line.receive()
            if "event" not in message:
                return returned_value(message, command)
            self._events.append(message["event"])

    def wait_for(self, event: str) -> None:
        """Wait for an event such as RESET; events since the connection was opened count.

        Raises:
            SilentError: it does not arrive within the time of this connection.
        """
        while event not in self._events:
            self._events.append(self._line.receive().get("event", ""))
