"""The machine from outside: QEMU's monitor (QMP). It hangs, goes on, or loses its power at once."""

from pathlib import Path
from typing import Any, Self

from upgrader_dev.devcluster.virtual.json_lines import Line, Message, make_request, returned_value

SECONDS = 10.0


class Monitor:
    """An exchange with one QEMU, which speaks to one at a time: others wait. A context manager."""

    def __init__(self, path: Path, seconds: float = SECONDS) -> None:
        self._line = Line(path, seconds)
        self._events: list[str] = []

    def __enter__(self) -> Self:
        self._line.__enter__()
        try:
            self._line.receive()  # its greeting
            self.ask("qmp_capabilities")
        except BaseException:
            self._line.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    def ask(self, command: str, arguments: Message | None = None) -> Any:  # noqa: ANN401 - each command has its own
        """The answer to a command; events that come meanwhile are kept.

        Raises:
            DevClusterError: it is refused, or (SilentError) there is no answer.
        """
        self._line.send(make_request(command, arguments))
        while True:
            message = self._line.receive()
            if "event" not in message:
                return returned_value(message, command)
            self._events.append(message["event"])

    def wait_for(self, event: str) -> None:
        """Until an event comes, as RESET; one that came since this exchange began counts.

        Raises:
            SilentError: it does not come in the time of this exchange.
        """
        while event not in self._events:
            self._events.append(self._line.receive().get("event", ""))
