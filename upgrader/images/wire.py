"""JSON of registries and of layouts: what is no such document is a ValueError, whichever way it is none."""

from typing import TypeVar

from upgrader.core import untrusted
from upgrader.core.errors import UnreadableError

T = TypeVar("T")


def decode(data: bytes, type_: type[T]) -> T:
    """A document.

    Raises:
        ValueError: it is none, is not of this type, is no UTF-8, is too long, or is nested too deep.
    """
    try:
        return untrusted.decode(data, type_, untrusted.FILE_BYTES)
    except UnreadableError as error:
        raise ValueError(error.brief) from error
