"""Supervisor for the first process of a PID namespace: starts and restarts programs, and reaps all processes."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.process.finished import exit_code

TICK_SECONDS = 0.05
"""Interval of checks of a condition while no process ends."""

RESTART_SECONDS = 0.5
"""Minimum seconds between two starts of a program."""


class SupervisedProgram(Struct, frozen=True, kw_only=True):
    """A program that is restarted when it ends."""

    name: str
    words: tuple[str, ...]
    log: str
    """File to which its output is appended."""
    env: Mapping[str, str] = {}


class _Run(Struct, kw_only=True):
    program: SupervisedProgram
    pid: int | None = None
    started: float = 0.0
    ends: int = 0


class Supervisor:
    """Runs programs until SIGTERM, which also ends the programs.

    A file `holds/NAME` prevents starts of NAME, for users and tests. `journal` has a line for each start and end.
    """

    def __init__(self, *, holds: Path, journal: Path) -> None:
        self._holds = holds
        self._journal = journal
        self._runs: dict[str, _Run] = {}
        self._signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP}
        # blocked, so that no signal is lost between two waits; programs are started with an empty mask
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)

    def add(self, program: SupervisedProgram) -> None:
        """Start a program and keep it running."""
        self._runs[program.name] = _Run(program=program)
        self._start_due()

    def run_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Keep all programs running until `condition` is true; False after `seconds` or on SIGTERM."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or not self._tick():
                return False
        return True

    def ends(self, name: str) -> int:
        """How often a program has ended."""
        return self._runs[name].ends

    def run(self) -> None:
        """Keep all programs running until SIGTERM, then end them."""
        while self._tick(idle=RESTART_SECONDS):
            pass
        for run in self._runs.values():
            if run.pid is not None:
                os.kill(run.pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while any(run.pid is not None for run in self._runs.values()) and time.monotonic() < deadline:
            signal.sigtimedwait({signal.SIGCHLD}, TICK_SECONDS)
            self._reap()

    def _tick(self, idle: float = TICK_SECONDS) -> bool:
        caught = signal.sigtimedwait(self._signals, idle)
        if caught is not None and caught.si_signo == signal.SIGTERM:
            return False
        self._reap()
        self._start_due()
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for run in self._runs.values():
                if run.pid == pid:
                    run.pid = None
                    run.ends += 1
                    self._note(f"{run.program.name} ended: {exit_code(os.waitstatus_to_exitcode(status))}")

    def _start_due(self) -> None:
        now = time.monotonic()
        for name, run in self._runs.items():
            if run.pid is None and now - run.started >= RESTART_SECONDS and not (self._holds / name).exists():
                run.started = now
                run.pid = _spawn_program(run.program)
                self._note(f"{name} started: pid {run.pid}")

    def _note(self, text: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def _spawn_program(program: SupervisedProgram) -> int:
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        program.words[0],
        program.words,
        {**os.environ, **program.env},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, program.log, append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsigmask=(),
    )
