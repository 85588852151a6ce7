"""What an API server does with JSON, as pure functions on plain dictionaries: patches, selectors, references."""

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
"""An object as its JSON is read."""

_SCALARS = (str, int, float, bool)
_SET_BASED = re.compile(r"^(?P<key>[^\s]+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")


def copy_value(value: T) -> T:
    """A copy that shares nothing; through JSON, since that is many times faster than copy.deepcopy."""
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
    """RFC 6902; what does not fit the value is a ConflictError, as it is for the client on the real API server."""
    try:
        result: Object = jsonpatch.apply_patch(copy_value(value), [dict(each) for each in operations], in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise ConflictError("the object is not as the patch expects it", details=str(error)) from error
    return result


def apply_fields(value: Object, previous: Object, wanted: Object) -> Object:
    """Server-side apply by one manager: what it applied before and no longer wants goes, lists are replaced whole."""
    result = {name: part for name, part in value.items() if name in wanted or name not in previous}
    for name, part in wanted.items():
        if isinstance(part, Mapping):
            result[name] = apply_fields(_as_mapping(value.get(name)), _as_mapping(previous.get(name)), dict(part))
        else:
            result[name] = copy_value(part)
    return result


def _as_mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def has_labels(labels: Mapping[str, str], selector: str) -> bool:
    """Whether labels satisfy a selector in kubectl's syntax."""
    if not selector:
        return True
    return all(_meets_requirement(labels, part) for part in _split_selector(selector))


def has_fields(value: Object, selector: str) -> bool:
    """Whether an object satisfies a field selector: dotted paths, = and !=."""
    return all((_text_at(value, path) == wanted) == equal for path, equal, wanted in fields_of(selector))


@functools.lru_cache(maxsize=4096)
def fields_of(selector: str) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    """A field selector in its parts: path, whether it should be equal, the value.

    Raises:
        ConfigurationError: it cannot be read.
    """
    parts = []
    for text in filter(None, (part.strip() for part in selector.split(","))):
        match = re.match(r"^([^!=]+)(!=|==|=)(.*)$", text)
        if match is None:
            raise ConfigurationError(f"field selector {text!r} cannot be read")
        path, operator, wanted = match.groups()
        parts.append((tuple(path.split(".")), operator != "!=", wanted))
    return tuple(parts)


def selected_by(labels: Mapping[str, str], selector: Mapping[str, Any]) -> bool:
    """Whether labels satisfy a LabelSelector object."""
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
    key, values, wanted = _parse_requirement(text)
    # As in Kubernetes, `notin` and `!=` also hold where the label is missing.
    return (key in labels if values is None else labels.get(key) in values) == wanted


@functools.lru_cache(maxsize=4096)
def _parse_requirement(text: str) -> tuple[str, frozenset[str] | None, bool]:
    """A label, its values (None: any), and whether it has to have one of them."""
    if match := _SET_BASED.match(text):
        return match["key"], frozenset(value.strip() for value in match["values"].split(",")), match["op"] == "in"
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        key, found, value = text.partition(operator)
        if found:
            return key.strip(), frozenset({value.strip()}), equal
    if re.search(r"[\s()]", text):
        raise ConfigurationError(f"label selector {text!r} cannot be read")
    return text.removeprefix("!"), None, not text.startswith("!")


def _text_at(value: Object, path: tuple[str, ...]) -> str:
    found: Any = value
    for part in path:
        found = found.get(part, "") if isinstance(found, dict) else ""
    return str(found)
