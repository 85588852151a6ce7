"""Values of our kinds with their defaults written out.

Our Structs leave defaults out on the wire. That is wrong in two places: in a merge patch, where a number that went back
to 0 would stay as it was, and in what is kept for a later release, which may have other defaults (law 10).
"""

from functools import cache
from typing import Any

import msgspec

from upgrader.api.fields import Resource


def explicit(value: Resource) -> dict[str, Any]:
    """The Struct as JSON with every field, also those of Structs inside it; None is left out."""
    pairs = ((encoded, getattr(value, name)) for name, encoded in _fields(type(value)))
    return {encoded: _plain(part) for encoded, part in pairs if part is not None}


@cache
def _fields(type_: type[Resource]) -> tuple[tuple[str, str], ...]:
    """Name and encoded name of each field: msgspec evaluates the annotations anew at each call."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(type_))


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value that msgspec can write
    if isinstance(value, Resource):
        return explicit(value)
    return msgspec.to_builtins(value)
