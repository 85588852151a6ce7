"""Running a program from a command on a node."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from upgrader import process


class Ended(Struct, frozen=True, kw_only=True):
    """A program that ended; `output` is what it wrote, standard output first."""

    code: int
    output: str


class Programs(Protocol):
    """The port to upgrader.process."""

    def run(self, words: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None) -> Ended:
        """Run to its end, with `env` on top of our environment.

        Raises:
            ProcessError: it does not end in time, or cannot be started.
        """
        ...


class SystemPrograms:
    """The real one."""

    def run(self, words: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None) -> Ended:
        finished = process.run(words, timeout=seconds, env=env, check=False)
        return Ended(code=finished.code, output=(finished.stdout + finished.stderr).decode(errors="replace"))
