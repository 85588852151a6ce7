"""JSON of registries and of layouts: what is no such document is a ValueError, whichever way it is none."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode(data: bytes, type_: type[T]) -> T:
    """A document.

    Raises:
        ValueError: it is none, is not of this type, is no UTF-8, or is nested too deep.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
