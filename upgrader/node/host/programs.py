"""Running programs, as a port."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from upgrader import process


class ProgramResult(Struct, frozen=True, kw_only=True):
    """Result of a program; `output` is standard output followed by standard error."""

    code: int
    output: str

    @property
    def one_line(self) -> str:
        """The output as one line, for messages."""
        return " ".join(self.output.split())


class ProgramRunner(Protocol):
    """The port to upgrader.process."""

    def run(self, words: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None) -> ProgramResult:
        """Run a program to its end, with `env` in addition to the environment of this process.

        Raises:
            ProcessError: it does not end in time, or cannot be started.
        """
        ...


class SystemPrograms:
    """The port implemented by upgrader.process."""

    def run(self, words: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None) -> ProgramResult:
        finished = process.run(words, timeout=seconds, env=env, check=False)
        return ProgramResult(code=finished.code, output=(finished.stdout + finished.stderr).decode(errors="replace"))
