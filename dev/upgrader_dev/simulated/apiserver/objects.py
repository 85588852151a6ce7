"""Functions of an API server on JSON objects: patches and selectors."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jsonpatch
import jsonpointer
import msgspec

from upgrader.core.errors import ConfigurationError, ConflictError

T = TypeVar("T")

Object = dict[str, Any]
"""An object as decoded JSON."""

_SCALARS = (str, int, float, bool)
_SET_BASED = re.compile(r"^(?P<key>[^\s]+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")


def copy_value(value: T) -> T:
    """A deep copy; by JSON, which is many times faster than copy.deepcopy."""
    result: T = msgspec.json.decode(msgspec.json.encode(value))
    return result


def apply_merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
    if type(patch) in _SCALARS:
        return patch
    if not isinstance(patch, Mapping):
        return copy_value(patch)
    result = dict(value) if isinstance(value, Mapping) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), part)
    return result


def apply_json_patch(value: Object, operations: Sequence[Mapping[str, Any]]) -> Object:
    """RFC 6902; a patch that does not match the value raises ConflictError, as in the client of a real API server."""
    try:
        result: Object = jsonpatch.apply_patch(
            copy_value(value), [dict(operation) for operation in operations], in_place=True
        )
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise ConflictError("the object does not have the values that the patch expects", details=str(error)) from error
    return result


def apply_fields(value: Object, previous: Object, applied: Object) -> Object:
    """Server-side apply by one manager: fields that it applied before and omits now are removed; lists are atomic."""
    result = {name: part for name, part in value.items() if name in applied or name not in previous}
    for name, part in applied.items():
        if isinstance(part, Mapping):
            result[name] = apply_fields(_as_mapping(value.get(name)), _as_mapping(previous.get(name)), dict(part))
        else:
            result[name] = copy_value(part)
    return result


def _as_mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def has_labels(labels: Mapping[str, str], selector: str) -> bool:
    """Whether labels match a selector in kubectl's syntax."""
    if not selector:
        return True
    return all(_meets_requirement(labels, part) for part in _split_selector(selector))


def has_fields(value: Object, selector: str) -> bool:
    """Whether an object matches a field selector: dotted paths, = and !=."""
    return all(
        (_read_text(value, path) == expected) == equal for path, equal, expected in parse_field_selector(selector)
    )


@functools.lru_cache(maxsize=4096)
def parse_field_selector(selector: str) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    """The parts of a field selector: path, whether it must be equal, the value.

    Raises:
        ConfigurationError: the selector is malformed.
    """
    parts = []
    for text in filter(None, (part.strip() for part in selector.split(","))):
        match = re.match(r"^([^!=]+)(!=|==|=)(.*)$", text)
        if match is None:
            raise ConfigurationError(f"field selector {text!r} is malformed")
        path, operator, value = match.groups()
        parts.append((tuple(path.split(".")), operator != "!=", value))
    return tuple(parts)


def matches_label_selector(labels: Mapping[str, str], selector: Mapping[str, Any]) -> bool:
    """Whether labels match a LabelSelector object."""
    texts = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    for expression in selector.get("matchExpressions", []):
        key, values = expression["key"], ", ".join(expression.get("values", []))
        texts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return all(_meets_requirement(labels, text) for text in texts)


@functools.lru_cache(maxsize=4096)
def _split_selector(selector: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _meets_requirement(labels: Mapping[str, str], text: str) -> bool:
    key, values, positive = _parse_requirement(text)
    # as in Kubernetes, `notin` and `!=` also match if the label is missing
    return (key in labels if values is None else labels.get(key) in values) == positive


@functools.lru_cache(maxsize=4096)
def _parse_requirement(text: str) -> tuple[str, frozenset[str] | None, bool]:
    """A label, its values (None: any), and whether one of them is required."""
    if match := _SET_BASED.match(text):
        return match["key"], frozenset(value.strip() for value in match["values"].split(",")), match["op"] == "in"
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        key, separator, value = text.partition(operator)
        if separator:
            return key.strip(), frozenset({value.strip()}), equal
    if re.search(r"[\s()]", text):
        raise ConfigurationError(f"label selector {text!r} is malformed")
    return text.removeprefix("!"), None, not text.startswith("!")


def _read_text(value: Object, path: tuple[str, ...]) -> str:
    current: Any = value
    for part in path:
        current = current.get(part, "") if isinstance(current, dict) else ""
    return str(current)
