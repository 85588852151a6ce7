"""What both doors share: a program and what it left, the ways in which one goes wrong, how its group is ended."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.process.redact import redact, shown

_LINES_SHOWN = 20

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL to the process group of a program that took too long."""


class Command(Struct, frozen=True, kw_only=True):
    """A program and all that it is given."""

    words: tuple[str, ...]
    timeout: float
    """Seconds until it is ended with its whole process group."""
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    """Set on top of our own environment."""
    stdin: bytes = b""
    secrets: tuple[str, ...] = ()
    """Never shown in an error or a log."""

    @classmethod
    def of(
        cls,
        words: Sequence[str | Path],
        timeout: float,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        stdin: bytes,
        secrets: Sequence[str],
    ) -> Self:
        """From what a caller of `run` gives."""
        texts = tuple(str(word) for word in words)
        return cls(words=texts, timeout=timeout, cwd=cwd, env=env, stdin=stdin, secrets=tuple(secrets))

    def __str__(self) -> str:
        return shown(self.words, self.secrets)

    def __repr__(self) -> str:
        """Without its environment and input, which passwords stand in: values are shown in tracebacks and logs."""
        return f"Command({str(self)!r})"


class Finished(Struct, frozen=True, kw_only=True):
    """What a program left: `code` as the shell has it (128 + signal), the whole of its output, `seconds` it took."""

    command: Command
    code: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def text(self) -> str:
        """Standard output as text, without the line end at its end."""
        return self.stdout.decode(errors="replace").rstrip("\n")


class ProgramFailedError(ProcessError):
    """A program ended with an error; `finished` has its output whole, the message its last lines."""

    def __init__(self, finished: Finished, brief: str = "") -> None:
        super().__init__(brief or f"`{finished.command}` ended with {finished.code}", details=_last_lines(finished))
        self.finished = finished


class ProgramTimeoutError(ProgramFailedError):
    """A program did not end in its time; it was ended, and `finished` has what it said until then."""

    def __init__(self, finished: Finished) -> None:
        super().__init__(finished, f"`{finished.command}` did not end within {finished.command.timeout:g} s")


class ProgramMissingError(ProcessError):
    """A program is not there, or cannot be started."""

    def __init__(self, command: Command, error: OSError) -> None:
        super().__init__(f"`{command.words[0]}` cannot be started", details=f"{command}: {error.strerror}")


def environment(changes: Mapping[str, str] | None, ours: Mapping[str, str]) -> dict[str, str]:
    """Our environment with `changes` on top."""
    return {**ours, **(changes or {})}


def exit_code(returncode: int) -> int:
    """Python's negative signal number as the shell writes it."""
    return 128 - returncode if returncode < 0 else returncode


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that a program was started as; that nobody is left in it is what is wanted."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def judged(finished: Finished, *, check: bool, overdue: bool) -> Finished:
    """What the caller gets; ProgramTimeoutError where it took too long, ProgramFailedError where its code is wrong."""
    if overdue:
        raise ProgramTimeoutError(finished)
    if check and finished.code != 0:
        raise ProgramFailedError(finished)
    return finished


def _last_lines(finished: Finished) -> str:
    said: Sequence[str] = (finished.stdout + b"\n" + finished.stderr).decode(errors="replace").splitlines()
    lines = [line for line in said if line.strip()][-_LINES_SHOWN:]
    return redact("\n".join(lines), finished.command.secrets)
