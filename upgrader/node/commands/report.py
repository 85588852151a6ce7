"""Common part of the commands that report: the termination message is the report, or the reason of a failure."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from upgrader.core.node_protocol.orders import TERMINATION_LOG
from upgrader.node.host.task_result import EXIT_CODES, LONGEST_MESSAGE, OrderFailedError, write_text


def run_report(read: Callable[[], object]) -> int:
    """Read a report, print it and write it as the termination message; returns the exit code."""
    try:
        text, code = msgspec.json.encode(read()), 0
    except OrderFailedError as error:
        text, code = str(error).encode(), EXIT_CODES[error.reason]
    sys.stdout.write(text.decode() + "\n")
    write_text(text[:LONGEST_MESSAGE], Path(TERMINATION_LOG))
    return code
