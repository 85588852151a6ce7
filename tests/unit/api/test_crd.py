"""CRDs from types: everything described, nothing that a structural schema may not have, refusals with a path."""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

from tests.support import manifests as m
from tests.support.repository import documented_manifests
from upgrader.api import resources
from upgrader.api.crd import SchemaError, crd_manifest, structural_schema
from upgrader.api.kinds import KINDS, ValidationRule
from upgrader.api.names import GROUP
from upgrader.api.resources import ResourceKind
from upgrader.core.model.operands import Operand

BY_KIND = {kind.resource.kind: kind for kind in KINDS}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=BY_KIND)


def nodes_of(part: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, part
    for name, child in part.get("properties", {}).items():
        yield from nodes_of(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in part:
            yield from nodes_of(part[name], f"{path}[]")


def test_every_kind_of_our_group_has_a_definition():
    shipped = {
        value.kind for value in vars(resources).values() if isinstance(value, ResourceKind) and value.group == GROUP
    }
    assert shipped == set(BY_KIND)


A_ROW = re.compile(r'\[\?\(@\.(type|operand)=="(\w+)"\)\]')


@EVERY_KIND
def test_every_field_is_described(kind):
    root = structural_schema(kind.resource.type)
    silent = [
        path
        for path, part in nodes_of(root, "")
        if not path.endswith("[]") and not path.startswith(".metadata") and not part.get("description")
    ]
    assert silent == []


@EVERY_KIND
def test_the_schema_is_structural(kind):
    """Kubernetes, "Specifying a structural schema": a type everywhere, nothing of it inside anyOf, no references."""
    for path, part in nodes_of(structural_schema(kind.resource.type), ""):
        assert "type" in part or part.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "title", "oneOf", "allOf", "not"} & set(part), path
        assert "anyOf" not in part or part["x-kubernetes-int-or-string"], path


@EVERY_KIND
def test_columns_name_fields_that_exist(kind):
    described = {
        path: part.get("description", "") for path, part in nodes_of(structural_schema(kind.resource.type), "")
    }
    known = {*described, ".metadata.creationTimestamp"}
    assert [column.path for column in kind.columns if A_ROW.sub("[]", column.path) not in known] == []
    rows = [(one[1], one[2]) for column in kind.columns for one in A_ROW.finditer(column.path)]
    assert {name for by, name in rows if by == "operand"} <= {one.value for one in Operand}
    conditions = [name for by, name in rows if by == "type"]
    assert [one for one in conditions if one not in described[".status.conditions"]] == []


@EVERY_KIND
def test_status_is_a_subresource_without_defaults(kind):
    version = crd_manifest(kind)["spec"]["versions"][0]
    assert version["subresources"] == {"status": {}}
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert [path for path, part in nodes_of(status, "") if "default" in part] == []


def test_defaults_of_the_spec_are_stored_with_the_object():
    spec = structural_schema(resources.UPGRADE_PLANS.type)["properties"]["spec"]["properties"]
    assert spec["state"]["default"] == "Running"
    assert spec["strategy"]["default"] == {
        "maxUnavailable": "25%",
        "minAvailableGPUs": 0,
        "canary": {"enabled": True, "soakSeconds": 600},
        "waitForCompletionSeconds": 3600,
        "validation": "Devices",
        "onFailure": "Pause",
    }
    assert spec["strategy"]["properties"]["maxUnavailable"]["default"] == "25%"
    assert "default" not in spec["approval"]


@pytest.mark.parametrize(
    "manifest",
    [m.gpu_stack(), m.upgrade_plan(), m.node_upgrade(), m.checkpoint_request(), m.driver_image()],
    ids=lambda manifest: manifest["kind"],
)
def test_what_is_decoded_is_encoded_again(manifest):
    type_ = BY_KIND[manifest["kind"]].resource.type
    value = msgspec.convert(manifest, type_)
    assert msgspec.json.decode(msgspec.json.encode(value), type=type_) == value
    assert msgspec.to_builtins(value)["spec"] == manifest["spec"]


@pytest.mark.parametrize(("where", "manifest"), list(documented_manifests()))
def test_every_documented_manifest_is_valid(where, manifest):
    msgspec.convert(manifest, BY_KIND[manifest["kind"]].resource.type)


class Spec(Struct):
    """A spec."""

    size: Annotated[int, Meta(description="Its size.")]


def kind_with(**fields: Any) -> type[Struct]:
    spec = msgspec.defstruct("Spec", list(fields.items()), namespace={"__doc__": "A spec."})
    return msgspec.defstruct("Thing", [("spec", spec)], namespace={"__doc__": "A thing."})


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("type_", "where"),
    [
        (kind_with(size=int), "spec.size: no description"),
        (kind_with(size=Annotated[bytes, Meta(description="S.")]), "spec.size: BytesType has no structural form"),
        (kind_with(size=Annotated[int | str, Meta(description="S.")]), "spec.size: a union of several types"),
        (kind_with(size=Annotated[list[Any], Meta(description="S.")]), r"spec.size\[\]: AnyType"),
        (kind_with(size=Annotated[Level, Meta(description="S.")]), "spec.size: EnumType"),
        (msgspec.defstruct("Thing", [("spec", Spec)]), "Thing: no docstring"),
    ],
)
def test_what_has_no_structural_form_is_refused_with_its_path(type_, where):
    with pytest.raises(SchemaError, match=where):
        structural_schema(type_)


def test_a_rule_for_a_field_that_is_not_there_is_refused():
    with pytest.raises(SchemaError, match=r"rules for fields that do not exist: spec\.length"):
        structural_schema(
            kind_with(size=Annotated[int, Meta(description="S.")]), (ValidationRule("spec.length", "self > 1", "s"),)
        )


def test_a_default_that_is_a_second_truth_is_refused():
    inner = msgspec.defstruct("Inner", [("size", Annotated[int, Meta(description="S.")], 1)], frozen=True)
    spec = msgspec.defstruct(
        "Spec", [("inner", Annotated[inner, Meta(description="I.")], inner(2))], namespace={"__doc__": "A spec."}
    )
    thing = msgspec.defstruct("Thing", [("spec", spec)], namespace={"__doc__": "A thing."})
    with pytest.raises(SchemaError, match=r"spec\.inner: the default must equal"):
        structural_schema(thing)
