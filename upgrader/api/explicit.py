"""Values of custom resources with their defaults written out.

The Structs omit defaults on the wire. That is wrong in two places: in a merge patch, where a number that is 0 again
would keep its old value, and in data that is stored for a later release, which may have other defaults (law 10).
"""

from functools import cache
from typing import Any

import msgspec

from upgrader.core.fields import Resource


def explicit_json(value: Resource) -> dict[str, Any]:
    """The Struct as JSON with all fields, including those of nested Structs; None is omitted."""
    pairs = ((encoded, getattr(value, name)) for name, encoded in _encoded_fields(type(value)))
    return {encoded: _to_builtins(part) for encoded, part in pairs if part is not None}


@cache
def _encoded_fields(type_: type[Resource]) -> tuple[tuple[str, str], ...]:
    """Name and encoded name of each field: msgspec evaluates the annotations anew at each call."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(type_))


def _to_builtins(value: Any) -> Any:  # noqa: ANN401 - any value that msgspec can write
    if isinstance(value, Resource):
        return explicit_json(value)
    return msgspec.to_builtins(value)
