"""Answers of containers, as values, for all checkpoint methods."""

from msgspec import Struct


class CommandResult(Struct, frozen=True, kw_only=True):
    """A command that ended: its whole standard output, and its exit code."""

    output: bytes
    code: int


class Reply(Struct, frozen=True, kw_only=True):
    """An HTTP answer of a program in a pod."""

    status: int
    body: bytes = b""
    retry_after_seconds: int | None = None  # from its header Retry-After, if that is a number
