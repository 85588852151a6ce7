"""A program that has ended, and the three ways in which one can go wrong."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.process.redact import redact, shown

_LINES_SHOWN = 20


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

    def __str__(self) -> str:
        return shown(self.words, self.secrets)


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


def _last_lines(finished: Finished) -> str:
    said: Sequence[str] = (finished.stdout + b"\n" + finished.stderr).decode(errors="replace").splitlines()
    lines = [line for line in said if line.strip()][-_LINES_SHOWN:]
    return redact("\n".join(lines), finished.command.secrets)
