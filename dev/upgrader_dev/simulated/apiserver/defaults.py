"""Defaults of structural schemas, which the API server sets."""

from typing import Any

from upgrader.api.crd import structural_schema
from upgrader.api.kinds import KINDS
from upgrader_dev.simulated.apiserver.objects import Object, copy_value


def fill_defaults(plural: str, value: Object) -> None:
    """Set the missing fields of an object of the operator's kinds; other kinds have no defaults here."""
    if plural in _SCHEMAS:
        _fill_defaults(value, _SCHEMAS[plural])


def _fill_defaults(value: Any, part: Object) -> None:
    """Outer defaults before inner defaults."""
    if isinstance(value, list):
        for item in value:
            _fill_defaults(item, part.get("items", {}))
    elif isinstance(value, dict):
        for name, child in part.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = copy_value(child["default"])
            if name in value:
                _fill_defaults(value[name], child)


def _extract_defaults(part: Object) -> Object:
    """The defaults of a schema without its other parts; empty if it has none."""
    defaults: Object = {}
    if "default" in part:
        defaults["default"] = part["default"]
    if "items" in part and (items := _extract_defaults(part["items"])):
        defaults["items"] = items
    properties = {name: _extract_defaults(child) for name, child in part.get("properties", {}).items()}
    if remaining := {name: child for name, child in properties.items() if child}:
        defaults["properties"] = remaining
    return defaults


_SCHEMAS = {kind.resource.plural: _extract_defaults(structural_schema(kind.resource.type)) for kind in KINDS}
