"""JSON of registries and layouts. Every kind of invalid document raises ValueError."""

from typing import TypeVar

from upgrader.core import untrusted
from upgrader.core.errors import UnreadableError

T = TypeVar("T")


def decode_json(data: bytes, type_: type[T]) -> T:
    """Decode a document.

    Raises:
        ValueError: the data are not JSON of this type, not UTF-8, too long, or nested too deeply.
    """
    try:
        return untrusted.decode_json(data, type_, untrusted.FILE_BYTES)
    except UnreadableError as error:
        raise ValueError(error.brief) from error
