"""Types for running programs: a command, its result, its errors; and functions on its process group."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.process.redact import redact_command, redact_text

_LINES_SHOWN = 20

GRACE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL to the process group of a program after its timeout."""


class Command(Struct, frozen=True, kw_only=True):
    """A program with its arguments, environment and input."""

    words: tuple[str, ...]
    timeout: float
    """Seconds after which its process group is ended."""
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    """Variables in addition to the environment of this process."""
    stdin: bytes = b""
    secrets: tuple[str, ...] = ()
    """Texts that are hidden in errors and logs."""

    @classmethod
    def from_arguments(
        cls,
        words: Sequence[str | Path],
        timeout: float,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        stdin: bytes,
        secrets: Sequence[str],
    ) -> Self:
        """A command from the arguments of `run`."""
        texts = tuple(str(word) for word in words)
        return cls(words=texts, timeout=timeout, cwd=cwd, env=env, stdin=stdin, secrets=tuple(secrets))

    def __str__(self) -> str:
        return redact_command(self.words, self.secrets)

    def __repr__(self) -> str:
        """Without environment and input, which may contain passwords, since tracebacks and logs contain values."""
        return f"Command({str(self)!r})"


class FinishedProgram(Struct, frozen=True, kw_only=True):
    """Result of a program: `code` as in a shell (128 + signal), its complete output, and `seconds` that it took."""

    command: Command
    code: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def text(self) -> str:
        """Standard output as text, without the final newline."""
        return self.stdout.decode(errors="replace").rstrip("\n")


class ProgramFailedError(ProcessError):
    """A program ended with an error; `finished` has its complete output, the message the last lines."""

    def __init__(self, finished: FinishedProgram, brief: str = "") -> None:
        super().__init__(
            brief or f"`{finished.command}` ended with exit code {finished.code}", details=_last_lines(finished)
        )
        self.finished = finished


class ProgramTimeoutError(ProgramFailedError):
    """A program was ended after its timeout; `finished` has its output until then."""

    def __init__(self, finished: FinishedProgram) -> None:
        super().__init__(finished, f"`{finished.command}` did not end within {finished.command.timeout:g} s")


class ProgramMissingError(ProcessError):
    """A program does not exist or cannot be started."""

    def __init__(self, command: Command, error: OSError) -> None:
        super().__init__(f"`{command.words[0]}` cannot be started", details=f"{command}: {error.strerror}")


def merge_environment(changes: Mapping[str, str] | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """The inherited environment with `changes`."""
    return {**inherited, **(changes or {})}


def exit_code(returncode: int) -> int:
    """The exit code as in a shell: 128 + signal instead of the negative signal of Python."""
    return 128 - returncode if returncode < 0 else returncode


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the process group of a program; does nothing if the group is empty."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def check_result(finished: FinishedProgram, *, check: bool, overdue: bool) -> FinishedProgram:
    """The result, or ProgramTimeoutError after a timeout, or ProgramFailedError for an exit code other than 0."""
    if overdue:
        raise ProgramTimeoutError(finished)
    if check and finished.code != 0:
        raise ProgramFailedError(finished)
    return finished


def _last_lines(finished: FinishedProgram) -> str:
    output: Sequence[str] = (finished.stdout + b"\n" + finished.stderr).decode(errors="replace").splitlines()
    lines = [line for line in output if line.strip()][-_LINES_SHOWN:]
    return redact_text("\n".join(lines), finished.command.secrets)
