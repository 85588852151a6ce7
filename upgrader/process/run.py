"""Running programs to their end: in a separate process group, with a timeout for the group and complete output."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from upgrader.process.finished import (
    GRACE_SECONDS,
    Command,
    FinishedProgram,
    ProgramMissingError,
    check_result,
    exit_code,
    merge_environment,
    signal_group,
)

Line = Callable[[str], None]


def run(
    words: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    secrets: Sequence[str] = (),
    check: bool = True,
    on_line: Line | None = None,
) -> FinishedProgram:
    """Run a program to its end. `on_line` receives the lines of its standard error while it runs, in another thread.

    A program in an uninterruptible sleep, such as the removal of a kernel module that hangs, does not end by SIGKILL.
    It is left, and counts as killed.

    Raises:
        ProgramMissingError: the program cannot be started.
        ProgramTimeoutError: it did not end within `timeout` seconds.
        ProgramFailedError: `check` is set, and its exit code is not 0.
    """
    command = Command.from_arguments(words, timeout, cwd, env, stdin, secrets)
    started = time.monotonic()
    process = _start_process(command)
    streams = _Streams(process, command.stdin, on_line)
    try:
        process.wait(timeout)
        overdue = not streams.wait_until_drained(max(0.0, timeout - (time.monotonic() - started)))
    except subprocess.TimeoutExpired:
        overdue = True
    except BaseException:
        _kill_process(process)
        raise
    if overdue:
        _end_process(process)
        streams.wait_until_drained(GRACE_SECONDS)
    finished = FinishedProgram(
        command=command,
        code=exit_code(_final_code(process)),
        stdout=streams.stdout,
        stderr=streams.stderr,
        seconds=time.monotonic() - started,
    )
    return check_result(finished, check=check, overdue=overdue)


class _Streams:
    """Writes the input and reads the output of a process in threads, so that a full pipe does not block it."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, on_line: Line | None) -> None:
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        assert process.stdin is not None  # noqa: S101 - for mypy: PIPE was used
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._threads = [
            threading.Thread(target=_write_input, args=(process.stdin, stdin), daemon=True),
            threading.Thread(target=_read_output, args=(process.stdout, self._out, None), daemon=True),
            threading.Thread(target=_read_output, args=(process.stderr, self._err, on_line), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_drained(self, seconds: float) -> bool:
        """Whether all processes have closed the pipes within `seconds`."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def stdout(self) -> bytes:
        return b"".join(self._out)

    @property
    def stderr(self) -> bytes:
        return b"".join(self._err)


def _write_input(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:
        return  # the program did not read all its input, which is not an error


def _read_output(pipe: IO[bytes], output: list[bytes], on_line: Line | None) -> None:
    with pipe:  # closed only here: close() waits for a thread that reads the pipe
        for line in pipe:
            output.append(line)
            if on_line is not None:
                on_line(line.decode(errors="replace").rstrip("\n"))


def _start_process(command: Command) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=merge_environment(command.env, os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramMissingError(command, error) from error


def _end_process(process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # killed below
    finally:
        signal_group(process.pid, signal.SIGKILL)


def _final_code(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


def _kill_process(process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
