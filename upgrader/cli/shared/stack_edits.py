"""What a stack should say: from a manifest, and from `--set path=value`. Unknown fields are faults, not ignored."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from upgrader.api.explicit import explicit
from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import GpuStackSpec
from upgrader.core.errors import ConfigurationError

Spec = dict[str, Any]


def read_manifest(path: Path) -> tuple[str, Spec]:
    """Name and spec of the one GpuStack in a file.

    Raises:
        ConfigurationError: no YAML, no GpuStack, several, or fields that we do not know.
    """
    try:
        documents = [one for one in yaml.safe_load_all(path.read_text()) if one is not None]
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read", details=str(error)) from error
    except (ValueError, LookupError, AttributeError, RecursionError) as error:
        # What the library meets in values: `2001-99-99`, `!!int`, `!!bool x`, `!!timestamp x`, no UTF-8, a deep nest.
        details = f"a value in it is no YAML ({type(error).__name__}: {error})"
        raise ConfigurationError(f"{path} cannot be read", details=details) from error
    stacks = [one for one in documents if isinstance(one, dict) and one.get("kind") == GPU_STACKS.kind]
    if len(stacks) != 1:
        raise ConfigurationError(
            f"{path} holds {len(stacks)} GpuStacks, one is needed",
            resolution="`upgrader plan -f` takes the manifest of one stack; apply other kinds with kubectl.",
        )
    stack = stacks[0]
    if stack.get("apiVersion") != GPU_STACKS.api_version:
        raise ConfigurationError(f"{path}: apiVersion is {stack.get('apiVersion')}, not {GPU_STACKS.api_version}")
    metadata, spec = stack.get("metadata"), stack.get("spec")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not isinstance(spec, dict):
        raise ConfigurationError(f"{path}: a GpuStack needs metadata.name and spec")
    return name, explicit(spec_of(spec, str(path)))


def spec_of(spec: Mapping[str, Any], origin: str, *, texts: bool = False) -> GpuStackSpec:
    """A spec that was checked; `texts`: numbers and booleans may be written as texts, as --set does.

    Raises:
        ConfigurationError: the first thing that is wrong with it, with its path.
    """
    unknown = sorted(_unknown(inspect.type_info(GpuStackSpec), spec, "spec"))
    if unknown:
        raise ConfigurationError(
            f"{origin}: unknown field {unknown[0]}",
            resolution="`kubectl explain gpustack.spec --recursive` shows every field.",
        )
    try:
        return msgspec.convert(spec, GpuStackSpec, strict=not texts)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{origin}: the spec of the stack is not valid", details=str(error)) from error


def with_changes(spec: Spec, changes: Sequence[str]) -> Spec:
    """The spec with `path=value` changes, paths as in the manifest below spec: driver.version=570.20.

    Raises:
        ConfigurationError: a change without `=`, an unknown path, or a value that does not fit.
    """
    changed: Spec = msgspec.json.decode(msgspec.json.encode(spec))
    for change in changes:
        path, equals, value = change.partition("=")
        *parents, last = path.split(".")
        if not equals or not all((*parents, last)):
            raise ConfigurationError(f"--set {change} is no path=value, as driver.version=570.20")
        inner = changed
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"--set {change}: {parent} has no fields")
        inner[last] = value
    return explicit(spec_of(changed, "--set", texts=True))


def _unknown(type_: inspect.Type, value: Any, path: str) -> list[str]:  # noqa: ANN401 - any JSON value
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    if not isinstance(type_, inspect.StructType) or not isinstance(value, Mapping):
        return []
    fields = {field.encode_name: field.type for field in type_.fields}
    found = [f"{path}.{name}" for name in value if name not in fields]
    for name, part in value.items():
        if name in fields:
            found += _unknown(fields[name], part, f"{path}.{name}")
    return found
