"""Changes and comparisons of plain JSON objects, and the merge patch between two. No object is changed in place."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Json = Any
Path = tuple[str, ...]
"""Keys from an object's root; `*` means every entry of a list or map."""


def value_at(value: Json, path: Path) -> Json:
    """The value at a path without `*`; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def text_at(value: Json, path: Path) -> str:
    """The text at a path without `*`; empty if there is none."""
    text = value_at(value, path)
    return text if isinstance(text, str) else ""


def values_at(value: Json, path: Path) -> Iterator[Json]:
    """All values at a path, entries of lists and maps in their order."""
    if not path:
        if value is not None:
            yield value
        return
    for inner in _child_values(value) if path[0] == "*" else [value_at(value, path[:1])]:
        yield from values_at(inner, path[1:])


def with_value(value: Json, path: Path, new: Json) -> dict[str, Any]:
    """The object with another value at a path; None removes the value, and does not create its parents."""
    whole = dict(value) if isinstance(value, Mapping) else {}
    if len(path) > 1:
        if new is not None or isinstance(whole.get(path[0]), Mapping):
            whole[path[0]] = with_value(whole.get(path[0]), path[1:], new)
    elif new is None:
        whole.pop(path[0], None)
    else:
        whole[path[0]] = new
    return whole


def change_at(value: Json, path: Path, change: Callable[[Json], Json]) -> Json:
    """The object with all values at a path changed; missing values stay missing."""
    if not path:
        return change(value)
    if path[0] != "*":
        inner = value_at(value, path[:1])
        return value if inner is None else {**value, path[0]: change_at(inner, path[1:], change)}
    if isinstance(value, Mapping):
        return {key: change_at(inner, path[1:], change) for key, inner in value.items()}
    return [change_at(inner, path[1:], change) for inner in _child_values(value)]


def apply_merge_patch(value: Json, patch: Json) -> Json:
    """RFC 7386: objects are merged, null removes, any other value replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), part)
    return result


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest merge patch (RFC 7386) from `before` to `after`; a list that differs is written whole.

    The patch must be sent with the resourceVersion of `before`, since it replaces lists as they were read.
    """
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, part in after.items():
        old = before.get(name)
        if part is old and part is not None:  # nearly all parts of an object, at any depth
            continue
        if isinstance(part, Mapping) and isinstance(old, Mapping):
            inner = merge_patch(old, part)
            if inner:
                patch[name] = inner
        elif part != old or name not in before or isinstance(part, bool) is not isinstance(old, bool):
            patch[name] = part
    return patch


def _child_values(value: Json) -> Sequence[Json]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, Sequence) and not isinstance(value, str) else []
