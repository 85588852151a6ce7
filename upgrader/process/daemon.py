"""Daemons: programs that continue after the call and are found and signalled by their command line."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import tenacity

from upgrader.process.finished import Command, ProgramMissingError, merge_environment

PROC = Path("/proc")


def start_daemon(words: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program in a new session, with its output appended to `log`; returns its PID.

    Raises:
        ProgramMissingError: the program cannot be started.
    """
    command = Command(words=tuple(str(word) for word in words), timeout=0)
    log.parent.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawnp(
            command.words[0],
            command.words,
            merge_environment(env, os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise ProgramMissingError(command, error) from error
    # the PID is returned slightly before the process has its command line
    tenacity.Retrying(
        wait=tenacity.wait_fixed(0.001), retry=tenacity.retry_if_result(lambda found_or_ended: not found_or_ended)
    )(lambda: command_line(pid) or not is_alive(pid))
    return pid


def command_line(pid: int) -> tuple[str, ...]:
    """The arguments of a process; empty if it has ended, and during exec."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(word.decode(errors="surrogateescape") for word in words.split(b"\0")[:-1])


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def find_processes(*marks: str) -> list[int]:
    """PIDs of the processes with all of `marks` among their arguments, in ascending order."""
    pids = sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if set(marks) <= set(command_line(pid))]


def child_pids(pid: int) -> list[int]:
    """PIDs of the child processes of a process."""
    try:
        return [int(child) for child in (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def send_signal(pid: int, number: signal.Signals, *marks: str) -> bool:
    """Signal a process if its arguments contain `marks`, since PIDs are reused; returns whether it was sent."""
    if not set(marks) <= set(command_line(pid)):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped, which is some time after SIGSTOP was sent."""
    try:
        stats = [(task / "stat").read_text() for task in (PROC / str(pid) / "task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # a thread or the process ended in the meantime
        return False
    return all(stat.rpartition(") ")[2].startswith("T") for stat in stats)


def reap_child(pid: int) -> None:
    """Collect the exit status of a child process that has ended, so that no zombie remains."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
