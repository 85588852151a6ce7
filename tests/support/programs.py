"""Real programs that tests start and end: nothing of them is left when the block ends."""

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from upgrader.process import daemon


class Started:
    """A child of the test."""

    def __init__(self, words: list[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.pid = daemon.start_daemon(words, log=log, env=env)
        self.code: int | None = None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 20) -> int:
        """Its exit code, 128 + signal as the shell has it."""
        soon(self._ended, seconds)
        assert self.code is not None
        return self.code

    def running(self) -> bool:
        return not self._ended()

    def _ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
        return self.code is not None


@contextlib.contextmanager
def started(words: list[str], *, log: Path, env: Mapping[str, str] | None = None) -> Iterator[Started]:
    """A program for as long as the block runs; its whole session is killed then."""
    program = Started(words, log=log, env=env)
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        if program.running():
            program.wait()


def soon(look: Callable[[], object], seconds: float = 20) -> object:
    """What `look` gives as soon as that is true; an AssertionError otherwise. For tests without a loop."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"not seen within {seconds} s: {look}"
        pause.wait(0.02)
    return seen


def shell_as(name: Path) -> list[str]:
    """A copy of the shell under another name: a program whose /proc/PID/exe is that file. Words to run `sh -c`."""
    name.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path("/bin/sh").resolve(), name)
    return [str(name), "-c"]
