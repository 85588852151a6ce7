"""Results of the programs of a validation pod, from the files that its containers have written."""

import os
import stat
from pathlib import Path

from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.task_result import OrderFailedError

LONGEST_OUTPUT = 4 << 20
"""Bytes; a longer output is not read."""

_SHOWN = 300


class ProgramOutput(Struct, frozen=True, kw_only=True):
    """How a program has ended: exit code, standard output, and the end of what it printed at all, on one line."""

    code: int
    output: str
    end: str


def read_program(folder: Path, name: str) -> ProgramOutput:
    """The result of a program.

    Raises:
        OrderFailedError: DEVICE_FAILED: the program has left no exit code, or its output is too long.
    """
    output, errors = _read_text(folder / f"{name}.out"), _read_text(folder / f"{name}.err")
    code = untrusted.parse_whole(_read_text(folder / f"{name}.code").strip())
    if code is None:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{name}: the program has left no exit code in {folder}")
    shown = " ".join((errors.strip() or output).split())
    return ProgramOutput(code=code, output=output, end=shown[-_SHOWN:] or "nothing was printed")


def _read_text(path: Path) -> str:
    """The text of a file; empty if it does not exist. The programs may leave anything in the folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _file_failure(path, error.strerror) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _file_failure(path, "not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(LONGEST_OUTPUT + 1)
    finally:
        os.close(descriptor)
    if len(content) > LONGEST_OUTPUT:
        raise _file_failure(path, f"longer than {LONGEST_OUTPUT} bytes")
    return content.decode(errors="replace")


def _file_failure(path: Path, why: str | None) -> OrderFailedError:
    return OrderFailedError(Reason.DEVICE_FAILED, f"{path.name} cannot be read: {why}")
