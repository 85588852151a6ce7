"""The desired state of a stack, from a manifest and from `--set path=value`. Unknown fields are errors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from upgrader.api.explicit import explicit_json
from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import GpuStackSpec
from upgrader.core.errors import ConfigurationError

Spec = dict[str, Any]


def read_manifest(path: Path) -> tuple[str, Spec]:
    """Name and spec of the one GpuStack in a file.

    Raises:
        ConfigurationError: the file is not YAML, has no GpuStack or several, or has unknown fields.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document is not None]
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read", details=str(error)) from error
    except (ValueError, LookupError, AttributeError, RecursionError) as error:
        # Errors of the library in values: `2001-99-99`, `!!int`, `!!bool x`, `!!timestamp x`, not UTF-8, deep nesting.
        details = f"a value in it is not valid YAML ({type(error).__name__}: {error})"
        raise ConfigurationError(f"{path} cannot be read", details=details) from error
    stacks = [
        document for document in documents if isinstance(document, dict) and document.get("kind") == GPU_STACKS.kind
    ]
    if len(stacks) != 1:
        raise ConfigurationError(
            f"{path} contains {len(stacks)} GpuStacks; exactly one is required",
            resolution="`upgrader plan -f` reads the manifest of one stack; apply other kinds with kubectl.",
        )
    stack = stacks[0]
    if stack.get("apiVersion") != GPU_STACKS.api_version:
        raise ConfigurationError(f"{path}: apiVersion is {stack.get('apiVersion')}, must be {GPU_STACKS.api_version}")
    metadata, spec = stack.get("metadata"), stack.get("spec")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not isinstance(spec, dict):
        raise ConfigurationError(f"{path}: a GpuStack requires metadata.name and spec")
    return name, explicit_json(spec_of(spec, str(path)))


def spec_of(spec: Mapping[str, Any], origin: str, *, texts: bool = False) -> GpuStackSpec:
    """A validated spec; with `texts` numbers and booleans may be strings, as with --set.

    Raises:
        ConfigurationError: the first error, with its path.
    """
    unknown = sorted(_unknown_fields(inspect.type_info(GpuStackSpec), spec, "spec"))
    if unknown:
        raise ConfigurationError(
            f"{origin}: unknown field {unknown[0]}",
            resolution="`kubectl explain gpustack.spec --recursive` lists all fields.",
        )
    try:
        return msgspec.convert(spec, GpuStackSpec, strict=not texts)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{origin}: the spec of the stack is not valid", details=str(error)) from error


def with_changes(spec: Spec, changes: Sequence[str]) -> Spec:
    """The spec with `path=value` changes; paths are relative to spec: driver.version=570.20.

    Raises:
        ConfigurationError: a change has no `=`, an unknown path, or a value that is not valid.
    """
    changed: Spec = msgspec.json.decode(msgspec.json.encode(spec))
    for change in changes:
        path, equals, value = change.partition("=")
        *parents, last = path.split(".")
        if not equals or not all((*parents, last)):
            raise ConfigurationError(f"--set {change}: must be PATH=VALUE, for example driver.version=570.20")
        inner = changed
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"--set {change}: {parent} has no fields")
        inner[last] = value
    return explicit_json(spec_of(changed, "--set", texts=True))


def _unknown_fields(type_: inspect.Type, value: Any, path: str) -> list[str]:  # noqa: ANN401 - any JSON value
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    if not isinstance(type_, inspect.StructType) or not isinstance(value, Mapping):
        return []
    fields = {field.encode_name: field.type for field in type_.fields}
    unknown = [f"{path}.{name}" for name in value if name not in fields]
    for name, part in value.items():
        if name in fields:
            unknown += _unknown_fields(fields[name], part, f"{path}.{name}")
    return unknown
