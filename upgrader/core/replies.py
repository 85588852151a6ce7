"""What a container said: values, whoever asked it and however."""

from msgspec import Struct


class Ran(Struct, frozen=True, kw_only=True):
    """A command that ended: what it wrote to its standard output, whole, and its exit code."""

    output: bytes
    code: int


class Reply(Struct, frozen=True, kw_only=True):
    """An HTTP answer of a program in a pod."""

    status: int
    body: bytes = b""
    retry_after_seconds: int | None = None  # of its header Retry-After, where that is a number
