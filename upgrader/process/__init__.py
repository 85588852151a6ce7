"""The one door for subprocesses."""

from upgrader.process.finished import (
    Command,
    Finished,
    ProgramFailedError,
    ProgramMissingError,
    ProgramTimeoutError,
)
from upgrader.process.redact import redact, shown
from upgrader.process.run import run

__all__ = [
    "Command",
    "Finished",
    "ProgramFailedError",
    "ProgramMissingError",
    "ProgramTimeoutError",
    "redact",
    "run",
    "shown",
]
