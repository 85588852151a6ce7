"""Cores and memory that parallel builds share.

Cores are tokens in a pipe from which every make takes its jobs (GNU make's job server), so that ten parallel builds run
as many compilers as one. Each build holds one more token while its make runs, since make runs one job without a token.
https://www.gnu.org/software/make/manual/html_node/POSIX-Jobserver.html
"""

import contextlib
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from upgrader.core.errors import ConfigurationError

_TOKEN = b"+"


class BuildBudget:
    """A context manager. Builds of this process that enter `reserve_share` wait for free cores and memory.

    `cores` and `memory_mib` are the limits of all builds together; `place` is a folder for the pipe.
    """

    def __init__(self, place: Path, *, cores: int, memory_mib: int) -> None:
        if cores < 1 or memory_mib < 1:
            raise ConfigurationError("a build needs at least one core and 1 MiB of memory")
        self.cores = cores
        self.memory_mib = memory_mib
        self.tokens = place / "tokens"
        self._pipe = -1
        self._changed = threading.Condition()
        self._inside = 0
        self._memory_used = 0

    def __enter__(self) -> Self:
        self.tokens.parent.mkdir(parents=True, exist_ok=True)
        self.tokens.unlink(missing_ok=True)
        os.mkfifo(self.tokens)
        self.tokens.chmod(0o666)  # for the build user, independent of the umask
        self._pipe = os.open(self.tokens, os.O_RDWR | os.O_NONBLOCK)
        os.write(self._pipe, _TOKEN * self.cores)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._pipe)
        self.tokens.unlink(missing_ok=True)

    @contextmanager
    def reserve_share(self, memory_mib: int) -> Iterator[None]:
        """Wait for memory and a core, and hold both. A single build may exceed the memory limit."""
        wanted = min(memory_mib, self.memory_mib)
        with self._changed:
            self._changed.wait_for(lambda: self._memory_used + wanted <= self.memory_mib)
            self._memory_used += wanted
            self._inside += 1
        try:
            self._take_token()
            try:
                yield
            finally:
                os.write(self._pipe, _TOKEN)
        finally:
            with self._changed:
                self._memory_used -= wanted
                self._inside -= 1
                if self._inside == 0:
                    self._refill_tokens()
                self._changed.notify_all()

    def _take_token(self) -> None:
        while True:
            select.select([self._pipe], [], [])
            try:
                os.read(self._pipe, 1)
            except BlockingIOError:  # another build was faster
                continue
            return

    def _refill_tokens(self) -> None:
        """Restore all tokens when no build runs, since a make that was killed loses its tokens."""
        with contextlib.suppress(BlockingIOError):  # no token is left
            os.read(self._pipe, 2 * self.cores)
        os.write(self._pipe, _TOKEN * self.cores)


def memory_available_mib() -> int:
    """The memory that this machine can provide without swapping, less a fifth for other programs."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return max(1, available // 1024 * 4 // 5)
