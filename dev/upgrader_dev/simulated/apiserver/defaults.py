"""Defaults of structural schemas, as the API server fills them in."""

from typing import Any

from upgrader.api.crd import structural_schema
from upgrader.api.kinds import KINDS
from upgrader_dev.simulated.apiserver.objects import Object, copy_value


def fill_defaults(plural: str, value: Object) -> None:
    """Give an object of one of our kinds the fields that it lacks; others have no defaults here."""
    if plural in _SCHEMAS:
        _fill_defaults(value, _SCHEMAS[plural])


def _fill_defaults(value: Any, part: Object) -> None:
    """Outer ones before inner ones."""
    if isinstance(value, list):
        for item in value:
            _fill_defaults(item, part.get("items", {}))
    elif isinstance(value, dict):
        for name, child in part.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = copy_value(child["default"])
            if name in value:
                _fill_defaults(value[name], child)


def _of_defaults(part: Object) -> Object:
    """What a schema says about defaults, and nothing else; empty where it has none."""
    found: Object = {}
    if "default" in part:
        found["default"] = part["default"]
    if "items" in part and (items := _of_defaults(part["items"])):
        found["items"] = items
    properties = {name: _of_defaults(child) for name, child in part.get("properties", {}).items()}
    if kept := {name: child for name, child in properties.items() if child}:
        found["properties"] = kept
    return found


_SCHEMAS = {kind.resource.plural: _of_defaults(structural_schema(kind.resource.type)) for kind in KINDS}
