"""Programs that are run and waited for: own process group, a time-out that ends all of it, output kept whole."""

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
    Finished,
    ProgramMissingError,
    environment,
    exit_code,
    judged,
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
) -> Finished:
    """Run a program to its end. `on_line` gets every line of its standard error while it runs (in another thread).

    Raises:
        ProgramMissingError: it cannot be started.
        ProgramTimeoutError: it did not end within `timeout` seconds.
        ProgramFailedError: it ended with another code than 0, and `check` is set.
    """
    command = Command.of(words, timeout, cwd, env, stdin, secrets)
    started = time.monotonic()
    process = _started(command)
    streams = _Streams(process, command.stdin, on_line)
    try:
        process.wait(timeout)
        overdue = not streams.drained(max(0.0, timeout - (time.monotonic() - started)))
    except subprocess.TimeoutExpired:
        overdue = True
    except BaseException:
        _kill(process)
        raise
    if overdue:
        _end(process)
        streams.drained(GRACE_SECONDS)
    finished = Finished(
        command=command,
        code=exit_code(process.wait()),
        stdout=streams.stdout,
        stderr=streams.stderr,
        seconds=time.monotonic() - started,
    )
    return judged(finished, check=check, overdue=overdue)


class _Streams:
    """Feeds and drains a process in threads, so that no full pipe can stop it."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, on_line: Line | None) -> None:
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        assert process.stdin is not None  # noqa: S101 - tells mypy what PIPE means
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._threads = [
            threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True),
            threading.Thread(target=_drain, args=(process.stdout, self._out, None), daemon=True),
            threading.Thread(target=_drain, args=(process.stderr, self._err, on_line), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def drained(self, seconds: float) -> bool:
        """Whether everybody who held the pipes has closed them within `seconds`."""
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


def _feed(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:
        return  # it ended, or closed its input, without reading all: its exit code tells whether that is wrong


def _drain(pipe: IO[bytes], kept: list[bytes], on_line: Line | None) -> None:
    with pipe:  # closed here and nowhere else: closing a pipe that a thread reads waits for that thread
        for line in pipe:
            kept.append(line)
            if on_line is not None:
                on_line(line.decode(errors="replace").rstrip("\n"))


def _started(command: Command) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=environment(command.env, os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramMissingError(command, error) from error


def _end(process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # the next line is for it
    finally:
        signal_group(process.pid, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
