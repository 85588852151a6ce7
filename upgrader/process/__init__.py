"""All subprocesses are started by this package.

Here: running programs to their end, daemons, supervision, and hiding secrets in messages.
Not here: which programs are run.
"""

from upgrader.process.finished import (
    Command,
    FinishedProgram,
    ProgramFailedError,
    ProgramMissingError,
    ProgramTimeoutError,
)
from upgrader.process.redact import redact_command, redact_text
from upgrader.process.run import run

__all__ = [
    "Command",
    "FinishedProgram",
    "ProgramFailedError",
    "ProgramMissingError",
    "ProgramTimeoutError",
    "redact_command",
    "redact_text",
    "run",
]
