"""Programs that are run and waited for: own process group, a time-out that ends all of it, output kept whole."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from upgrader.process.finished import (
    Command,
    Finished,
    ProgramFailedError,
    ProgramMissingError,
    ProgramTimeoutError,
    environment,
    exit_code,
)

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL to the process group of a program that took too long."""

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
    command = _command(words, timeout, cwd, env, stdin, secrets)
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
    return _judged(finished, check=check, overdue=overdue)


async def run_async(
    words: Sequence[str | Path],
    *,
    timeout: float,  # noqa: ASYNC109 - the whole process group is ended, which asyncio.timeout would not do
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    secrets: Sequence[str] = (),
    check: bool = True,
) -> Finished:
    """As `run`; when the caller is cancelled, the process group is killed."""
    command = _command(words, timeout, cwd, env, stdin, secrets)
    started = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *command.words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=command.cwd,
            env=environment(command.env, os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramMissingError(command, error) from error
    stdout, stderr = bytearray(), bytearray()
    talking = asyncio.create_task(_talk(process, command.stdin, stdout, stderr))
    overdue = False
    try:
        await asyncio.wait({talking}, timeout=timeout)
        if not talking.done():
            overdue = True
            _signal_group(process.pid, signal.SIGTERM)
            await asyncio.wait({talking}, timeout=GRACE_SECONDS)
    finally:
        if not talking.done():
            _signal_group(process.pid, signal.SIGKILL)
            await asyncio.wait({talking}, timeout=GRACE_SECONDS)
            if not talking.done():  # somebody outside the group holds a pipe, which has no public way to be closed
                talking.cancel()
                process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
            await process.wait()
    finished = Finished(
        command=command,
        code=exit_code(await process.wait()),
        stdout=bytes(stdout),
        stderr=bytes(stderr),
        seconds=time.monotonic() - started,
    )
    return _judged(finished, check=check, overdue=overdue)


async def _talk(process: asyncio.subprocess.Process, stdin: bytes, stdout: bytearray, stderr: bytearray) -> None:
    async def feed(pipe: asyncio.StreamWriter | None) -> None:
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it did not read all: its code tells
                pipe.write(stdin)
                await pipe.drain()
            pipe.close()

    async def drain(pipe: asyncio.StreamReader | None, kept: bytearray) -> None:
        while pipe is not None and (chunk := await pipe.read(65536)):
            kept.extend(chunk)

    await asyncio.gather(feed(process.stdin), drain(process.stdout, stdout), drain(process.stderr, stderr))


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


def _command(
    words: Sequence[str | Path],
    timeout: float,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: bytes,
    secrets: Sequence[str],
) -> Command:
    return Command(
        words=tuple(str(word) for word in words),
        timeout=timeout,
        cwd=cwd,
        env=env,
        stdin=stdin,
        secrets=tuple(secrets),
    )


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
    _signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # the next line is for it
    finally:
        _signal_group(process.pid, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that a program was started as; that nobody is left in it is what is wanted."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _judged(finished: Finished, *, check: bool, overdue: bool) -> Finished:
    if overdue:
        raise ProgramTimeoutError(finished)
    if check and finished.code != 0:
        raise ProgramFailedError(finished)
    return finished
