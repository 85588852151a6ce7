"""Cores and memory that parallel builds share.

Cores are tokens in a pipe that every make takes its jobs from (GNU make's job server), so that ten builds together run
as many compilers as one would. Each build holds a token of its own while its make runs, because make runs one job for
which it asks nobody. https://www.gnu.org/software/make/manual/html_node/POSIX-Jobserver.html
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


class Budget:
    """A context manager; builds of this process that enter `share` wait until there is room.

    `cores` and `memory_mib` are what all builds together may use; `place` is a folder for the pipe.
    """

    def __init__(self, place: Path, *, cores: int, memory_mib: int) -> None:
        if cores < 1 or memory_mib < 1:
            raise ConfigurationError("a build needs at least one core and some memory")
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
        self.tokens.chmod(0o666)  # the build user is another, and umask has had its say
        self._pipe = os.open(self.tokens, os.O_RDWR | os.O_NONBLOCK)
        os.write(self._pipe, _TOKEN * self.cores)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._pipe)
        self.tokens.unlink(missing_ok=True)

    @contextmanager
    def share(self, memory_mib: int) -> Iterator[None]:
        """Wait for memory and a core, and hold both. One build alone may take more memory than there is."""
        wanted = min(memory_mib, self.memory_mib)
        with self._changed:
            self._changed.wait_for(lambda: self._memory_used + wanted <= self.memory_mib)
            self._memory_used += wanted
            self._inside += 1
        try:
            self._take()
            try:
                yield
            finally:
                os.write(self._pipe, _TOKEN)
        finally:
            with self._changed:
                self._memory_used -= wanted
                self._inside -= 1
                if self._inside == 0:
                    self._refill()
                self._changed.notify_all()

    def _take(self) -> None:
        while True:
            select.select([self._pipe], [], [])
            try:
                os.read(self._pipe, 1)
            except BlockingIOError:  # somebody was faster
                continue
            return

    def _refill(self) -> None:
        """Tokens of a make that was killed are lost with it; when nobody builds, all are there again."""
        with contextlib.suppress(BlockingIOError):  # none was left
            os.read(self._pipe, 2 * self.cores)
        os.write(self._pipe, _TOKEN * self.cores)


def memory_available_mib() -> int:
    """What this machine can give without swapping, less a fifth for everybody else."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return max(1, available // 1024 * 4 // 5)
