"""What the reporting commands share: the report is their termination message, or a sentence that says why not."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from upgrader.core.node_protocol.orders import TERMINATION_LOG
from upgrader.node.host.task_result import EXIT_CODES, LONGEST_MESSAGE, OrderFailedError, leave_text


def reported(read: Callable[[], object]) -> int:
    """Exit code of a command that reports what it reads."""
    try:
        text, code = msgspec.json.encode(read()), 0
    except OrderFailedError as error:
        text, code = str(error).encode(), EXIT_CODES[error.reason]
    sys.stdout.write(text.decode() + "\n")
    leave_text(text[:LONGEST_MESSAGE], Path(TERMINATION_LOG))
    return code
