"""`run` for an event loop, in a separate module, since most users of `run` do not import asyncio."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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


async def run_async(
    words: Sequence[str | Path],
    *,
    timeout: float,  # noqa: ASYNC109 - the whole process group is ended, which asyncio.timeout would not do
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    secrets: Sequence[str] = (),
    check: bool = True,
) -> FinishedProgram:
    """Like `run`; if the caller is cancelled, the process group is killed."""
    command = Command.from_arguments(words, timeout, cwd, env, stdin, secrets)
    started = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *command.words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=command.cwd,
            env=merge_environment(command.env, os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramMissingError(command, error) from error
    stdout, stderr = bytearray(), bytearray()
    io = asyncio.create_task(_feed_and_drain(process, command.stdin, stdout, stderr))
    overdue = False
    try:
        await asyncio.wait({io}, timeout=timeout)
        if not io.done():
            overdue = True
            signal_group(process.pid, signal.SIGTERM)
            await asyncio.wait({io}, timeout=GRACE_SECONDS)
    finally:
        if not io.done():
            signal_group(process.pid, signal.SIGKILL)
            await asyncio.wait({io}, timeout=GRACE_SECONDS)
            if not io.done():  # a process outside the group holds a pipe; there is no public method to close it
                io.cancel()
                process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
            await process.wait()
    finished = FinishedProgram(
        command=command,
        code=exit_code(await process.wait()),
        stdout=bytes(stdout),
        stderr=bytes(stderr),
        seconds=time.monotonic() - started,
    )
    return check_result(finished, check=check, overdue=overdue)


async def _feed_and_drain(
    process: asyncio.subprocess.Process, stdin: bytes, stdout: bytearray, stderr: bytearray
) -> None:
    async def feed(pipe: asyncio.StreamWriter | None) -> None:
        if pipe is not None:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the program did not read all its input, which is not an error
                pipe.write(stdin)
                await pipe.drain()
            pipe.close()

    async def drain(pipe: asyncio.StreamReader | None, output: bytearray) -> None:
        while pipe is not None and (chunk := await pipe.read(65536)):
            output.extend(chunk)

    await asyncio.gather(feed(process.stdin), drain(process.stdout, stdout), drain(process.stderr, stderr))
