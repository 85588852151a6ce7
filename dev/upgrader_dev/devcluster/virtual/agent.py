"""Access to the machine from inside: QEMU's guest agent runs programs. A program without an exit code still runs."""

import base64
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upgrader.core.errors import DevClusterError
from upgrader.process import Command, FinishedProgram, ProgramFailedError, ProgramTimeoutError
from upgrader_dev.devcluster.virtual.json_lines import Message, QemuConnection, make_request, returned_value

_POLL_SECONDS = 0.05
_RESPONSE_SECONDS = 5.0
_KILLED = 128


class Agent:
    """The agent behind a socket; each call is a separate connection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(
        self, words: Sequence[str | Path], seconds: float, *, check: bool = True, stdin: bytes = b""
    ) -> FinishedProgram:
        """Run a program on the node, outside all containers, and wait for its end.

        Raises:
            ProgramFailedError: its exit code is not 0 and `check` is set.
            ProgramTimeoutError: it has not ended within `seconds`, and was killed.
            SilentError: the agent does not respond: the machine is off, hangs, or has not booted yet.
        """
        command = Command(words=tuple(str(word) for word in words), timeout=seconds, stdin=stdin)
        with QemuConnection(self._path, _RESPONSE_SECONDS) as line:
            _synchronise_line(line)
            line.set_timeout(seconds + _RESPONSE_SECONDS)
            started = time.monotonic()
            pid: int = _send_command(line, "guest-exec", start_arguments(command))["pid"]
            while not (status := _send_command(line, "guest-exec-status", {"pid": pid}))["exited"]:
                if time.monotonic() - started > seconds:
                    _send_command(line, "guest-exec", {"path": "kill", "arg": ["-KILL", str(pid)]})
                    raise ProgramTimeoutError(_finished_program(command, {"exitcode": _KILLED + 9}, started))
                time.sleep(_POLL_SECONDS)
        finished = _finished_program(command, status, started)
        if check and finished.code != 0:
            raise ProgramFailedError(finished)
        return finished

    def start(self, words: Sequence[str], seconds: float = _RESPONSE_SECONDS) -> None:
        """Start a program without waiting for its end; for programs that end the agent too."""
        with QemuConnection(self._path, seconds) as line:
            _synchronise_line(line)
            _send_command(line, "guest-exec", {"path": words[0], "arg": list(words[1:])})


def start_arguments(command: Command) -> Message:
    """The arguments of guest-exec for a program with captured output."""
    path, *arguments = command.words
    standard_input = {"input-data": base64.b64encode(command.stdin).decode()} if command.stdin else {}
    return {"path": path, "arg": arguments, "capture-output": True, **standard_input}


def _finished_program(command: Command, status: Message, started: float) -> FinishedProgram:
    for stream in ("out", "err"):
        if status.get(f"{stream}-truncated"):
            raise DevClusterError(
                f"`{command}` wrote more output than the agent can return", resolution="Write the output to a file."
            )
    code = _KILLED + status["signal"] if "signal" in status else status["exitcode"]
    return FinishedProgram(
        command=command,
        code=code,
        stdout=base64.b64decode(status.get("out-data", "")),
        stderr=base64.b64decode(status.get("err-data", "")),
        seconds=time.monotonic() - started,
    )


def _synchronise_line(line: QemuConnection) -> None:
    # responses to a client that disconnected may still arrive
    number = secrets.randbits(31)
    line.send(make_request("guest-sync-delimited", {"id": number}, synchronised=True))
    while line.receive().get("return") != number:
        pass


def _send_command(line: QemuConnection, command: str, arguments: Message) -> Any:  # noqa: ANN401 - each command has its own
    line.send(make_request(command, arguments))
    return returned_value(line.receive(), command)
