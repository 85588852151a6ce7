"""Recorded outputs of a node: text that programs and files of it have, for `upgrader first-node`."""

import msgspec

LONGEST_OUTPUT = 128 << 10
"""Characters of one output; the end of a longer one is kept."""
LONGEST_RECORD = 700 << 10
"""Characters of all, since a log is read up to 1 MiB."""


class RecordOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Record the outputs of a node. Which ones is not a part of the order: a node runs no program of an order."""

    vendor: str = "nvidia"


class RecordedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log of the pod. `code`: exit code of a program, None for a file. `absent`: why there is no text."""

    name: str
    source: str
    text: str = ""
    code: int | None = None
    seconds: float = 0.0
    limit: float = 0.0
    cut: bool = False
    absent: str = ""
