"""The machine from inside: QEMU's guest agent runs programs for us. What has no exit code yet has not ended."""

import base64
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upgrader.core.errors import DevClusterError
from upgrader.process import Command, Finished, ProgramFailedError, ProgramTimeoutError
from upgrader_dev.devcluster.virtual.json_lines import Line, Message, make_request, returned_value

_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 5.0
_KILLED = 128


class Agent:
    """The agent behind a socket; each call is a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self, words: Sequence[str | Path], seconds: float, *, check: bool = True, stdin: bytes = b"") -> Finished:
        """Run a program on the node, outside all containers, and wait for its end.

        Raises:
            ProgramFailedError: its exit code is not 0 and `check` is on.
            ProgramTimeoutError: it has not ended within `seconds`, and was killed.
            SilentError: the agent does not answer: the machine is off, hangs, or has not booted yet.
        """
        command = Command(words=tuple(str(word) for word in words), timeout=seconds, stdin=stdin)
        with Line(self._path, _ANSWER_SECONDS) as line:
            _synchronise_line(line)
            line.allow(seconds + _ANSWER_SECONDS)
            started = time.monotonic()
            pid: int = _send_command(line, "guest-exec", start_arguments(command))["pid"]
            while not (told := _send_command(line, "guest-exec-status", {"pid": pid}))["exited"]:
                if time.monotonic() - started > seconds:
                    _send_command(line, "guest-exec", {"path": "kill", "arg": ["-KILL", str(pid)]})
                    raise ProgramTimeoutError(_finished_program(command, {"exitcode": _KILLED + 9}, started))
                time.sleep(_POLL_SECONDS)
        finished = _finished_program(command, told, started)
        if check and finished.code != 0:
            raise ProgramFailedError(finished)
        return finished

    def tell(self, words: Sequence[str], seconds: float = _ANSWER_SECONDS) -> None:
        """Start a program and do not wait for its end: it ends the agent, too."""
        with Line(self._path, seconds) as line:
            _synchronise_line(line)
            _send_command(line, "guest-exec", {"path": words[0], "arg": list(words[1:])})


def start_arguments(command: Command) -> Message:
    """The arguments of guest-exec for a program whose output is wanted."""
    path, *arguments = command.words
    given = {"input-data": base64.b64encode(command.stdin).decode()} if command.stdin else {}
    return {"path": path, "arg": arguments, "capture-output": True, **given}


def _finished_program(command: Command, told: Message, started: float) -> Finished:
    for stream in ("out", "err"):
        if told.get(f"{stream}-truncated"):
            raise DevClusterError(f"`{command}` said more than the agent holds", resolution="Let it write to a file.")
    code = _KILLED + told["signal"] if "signal" in told else told["exitcode"]
    return Finished(
        command=command,
        code=code,
        stdout=base64.b64decode(told.get("out-data", "")),
        stderr=base64.b64decode(told.get("err-data", "")),
        seconds=time.monotonic() - started,
    )


def _synchronise_line(line: Line) -> None:
    # answers to somebody who went away before they came may still be on their way
    number = secrets.randbits(31)
    line.send(make_request("guest-sync-delimited", {"id": number}, synchronised=True))
    while line.receive().get("return") != number:
        pass


def _send_command(line: Line, command: str, arguments: Message) -> Any:  # noqa: ANN401 - each command has its own
    line.send(make_request(command, arguments))
    return returned_value(line.receive(), command)
