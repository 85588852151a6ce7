"""Programs that outlive the call: started on their own, found again by their command line, signalled by it."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import tenacity

from upgrader.process.finished import Command, ProgramMissingError, environment

PROC = Path("/proc")


def start(words: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program in a session of its own; both outputs are appended to `log`. Returns its pid.

    Raises:
        ProgramMissingError: it cannot be started.
    """
    command = Command(words=tuple(str(word) for word in words), timeout=0)
    log.parent.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawnp(
            command.words[0],
            command.words,
            environment(env, os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise ProgramMissingError(command, error) from error
    # it is returned a moment before it can be found by its command line
    tenacity.Retrying(wait=tenacity.wait_fixed(0.001), retry=tenacity.retry_if_result(lambda seen: not seen))(
        lambda: command_line(pid) or not alive(pid)
    )
    return pid


def command_line(pid: int) -> tuple[str, ...]:
    """The words that a process was started with; empty when it has ended, and for a moment while it becomes another."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(word.decode(errors="surrogateescape") for word in words.split(b"\0")[:-1])


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected yet does not."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def find(*marks: str) -> list[int]:
    """Pids of the processes that have each of `marks` as a whole word of their command line, oldest first."""
    pids = sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if set(marks) <= set(command_line(pid))]


def children(pid: int) -> list[int]:
    """Pids of the processes that a process has started and that have not been adopted by another."""
    try:
        return [int(child) for child in (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def send(pid: int, number: signal.Signals, *marks: str) -> bool:
    """Signal a process if its command line still has `marks` (a pid is used again by others). Whether it was sent."""
    if not set(marks) <= set(command_line(pid)):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped: SIGSTOP is only sent when the signal returns."""
    try:
        found = [(task / "stat").read_text() for task in (PROC / str(pid) / "task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # a thread ended meanwhile, or the process did
        return False
    return all(stat.rpartition(") ")[2].startswith("T") for stat in found)


def collect(pid: int) -> None:
    """Take the exit status of a child of ours that has ended, so that no zombie stays; nothing for other processes."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
