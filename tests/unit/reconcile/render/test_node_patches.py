"""What is written on a node whose driver is taken away in a node upgrade: whole patches, and nothing twice."""

import json
from typing import Any

import msgspec
import pytest

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.phases import UpgradeReason
from upgrader.reconcile.render import node_patches

HAD = {"driver": "k-old", "revision": "old", "kernel": "6.1.0-53-amd64"}
OFF = {names.LABEL_DRIVER: "none", names.LABEL_OPERANDS: "off", names.LABEL_REVISION: None}
DEPLOYS = "nvidia.com/gpu.deploy.driver"
ADOPTED = {names.ANNOTATION_ADOPTED: json.dumps({DEPLOYS: "true"})}


def node(annotations: dict[str, str], **labels: str) -> Node:
    on = {names.LABEL_DRIVER: "k-new", names.LABEL_OPERANDS: "on"}
    meta = {"name": "gpu-1", "uid": "n1", "labels": on | labels, "annotations": annotations}
    return msgspec.convert(
        {"metadata": meta, "spec": {}, "status": {"nodeInfo": {"kernelVersion": HAD["kernel"]}}}, Node
    )


def upgrade(reason: UpgradeReason) -> NodeUpgrade:
    spec = {
        "stack": "pool",
        "group": "c",
        "node": {"name": "gpu-1", "uid": "n1"},
        "reason": reason,
        "source": {"driverKey": "k-old", "revision": "old"},
        "target": {"driverKey": "k-new", "revision": "new"},
    }
    return msgspec.convert({"metadata": {"name": "v", "uid": "u1"}, "spec": spec}, NodeUpgrade)


def goal(settings: dict[str, str], parameters: dict[str, str] | None = None) -> NodeState:
    return NodeState(kubelet_settings=settings, module_parameters=parameters or {})


@pytest.mark.parametrize(("reason", "revision"), [(UpgradeReason.ROLLOUT, "old"), (UpgradeReason.REPAIR, "new")])
def test_what_the_node_had_is_kept_with_the_settings_that_the_upgrade_has_made(
    reason: UpgradeReason, revision: str
) -> None:
    there = node({names.ANNOTATION_KUBELET: '{"old":"1"}'})
    patch: dict[str, Any] = node_patches.driver_away(there, upgrade(reason), goal({"new": "2"}, {"m.p": "3"})) or {}
    annotations = patch["metadata"]["annotations"]
    assert json.loads(annotations.pop(names.ANNOTATION_REMOVED_DRIVER)) == HAD | {"revision": revision}
    settings = {names.ANNOTATION_KUBELET: '{"new":"2"}', names.ANNOTATION_PARAMETERS: '{"m.p":"3"}'}
    assert patch == {"metadata": {"labels": OFF, "annotations": settings}}


def test_where_all_is_so_already_nothing_is_written() -> None:
    kept = {names.ANNOTATION_REMOVED_DRIVER: json.dumps(HAD)}
    there = node(kept, **{names.LABEL_DRIVER: "none", names.LABEL_OPERANDS: "off"})
    assert node_patches.driver_away(there, upgrade(UpgradeReason.ROLLOUT), goal({})) is None


def test_what_cannot_be_read_of_it_is_written_anew() -> None:
    there = node({names.ANNOTATION_REMOVED_DRIVER: "?"}, **{names.LABEL_DRIVER: "none", names.LABEL_OPERANDS: "off"})
    patch = node_patches.driver_away(there, upgrade(UpgradeReason.ROLLOUT), goal({}))
    assert patch is not None
    assert json.loads(patch["metadata"]["annotations"][names.ANNOTATION_REMOVED_DRIVER]) == HAD


@pytest.mark.parametrize(
    ("kept", "labels", "gone"),
    [
        ({}, {DEPLOYS: "true"}, {names.ANNOTATION_ADOPTED: None}),
        ({names.ANNOTATION_REMOVED_DRIVER: json.dumps(HAD)}, {}, {}),
    ],
    ids=["on which no operand ran goes back", "whose driver was removed stays in the stack"],
)
def test_a_node_that_was_taken_over(kept: dict[str, str], labels: dict[str, str], gone: dict[str, None]) -> None:
    there = node(ADOPTED | kept, **{names.LABEL_OPERANDS: "off", DEPLOYS: "false"})
    meta = node_patches.release_node(there, "u", "")["metadata"]
    assert (meta["labels"], meta["annotations"]) == (
        labels,
        {names.ANNOTATION_CLAIMED_BY: None, names.ANNOTATION_RELEASED_BY: "u"} | gone,
    )


DCGM = "nvidia.com/gpu.deploy.dcgm"
PAUSED = {DCGM: "paused-for-driver-upgrade"}
BOTH = json.dumps({DEPLOYS: "true", DCGM: "true"}, separators=(",", ":"))
TAKEN = json.dumps({DEPLOYS: "true"}, separators=(",", ":"))


def test_operands_of_another_operator_are_paused_with_the_write_that_switches_operands_off() -> None:
    there = node({names.ANNOTATION_ADOPT: "{}", names.ANNOTATION_ADOPTED: TAKEN}, **{DEPLOYS: "false", DCGM: "true"})
    assert node_patches.operands_off(there) == {
        "metadata": {"labels": OFF | PAUSED, "annotations": {names.ANNOTATION_ADOPTED: BOTH}}
    }
    assert node_patches.operands_off(node({}, **{DCGM: "true"})) == {"metadata": {"labels": OFF}}, "not handed over"


@pytest.mark.parametrize(
    ("value", "labels"),
    [("paused-for-driver-upgrade", {DCGM: "true"}), ("false", {})],
    ids=["as it was", "unless it was changed since"],
)
def test_they_run_again_with_the_write_that_switches_operands_on(value: str, labels: dict[str, str]) -> None:
    there = node({names.ANNOTATION_ADOPTED: BOTH}, **{DEPLOYS: "false", DCGM: value})
    assert node_patches.operands_on(there) == {
        "metadata": {
            "labels": {names.LABEL_OPERANDS: "on"} | labels,
            "annotations": {names.ANNOTATION_ADOPTED: TAKEN},
        }
    }
    plain = {"metadata": {"labels": {names.LABEL_OPERANDS: "on"}}}
    assert node_patches.operands_on(node({})) == plain
    assert node_patches.operands_on(node({names.ANNOTATION_ADOPTED: TAKEN}, **{DEPLOYS: "false"})) == plain


@pytest.mark.parametrize(
    ("operands", "kept", "labels", "left"),
    [
        ("on", {}, {DCGM: "true"}, TAKEN),
        ("off", {names.ANNOTATION_REMOVED_DRIVER: json.dumps(HAD)}, {DCGM: "true"}, TAKEN),
        ("off", {}, {DCGM: "true", DEPLOYS: "true"}, None),
    ],
    ids=["with a driver", "whose driver was removed", "handed back"],
)
def test_a_node_that_is_released_has_no_paused_operand(
    operands: str, kept: dict[str, str], labels: dict[str, str], left: str | None
) -> None:
    there = node({names.ANNOTATION_ADOPTED: BOTH} | kept, **{names.LABEL_OPERANDS: operands, DEPLOYS: "false"} | PAUSED)
    meta = node_patches.release_node(there, "u", "")["metadata"]
    assert {key: value for key, value in meta["labels"].items() if key.startswith("nvidia.com/")} == labels
    assert meta["annotations"][names.ANNOTATION_ADOPTED] == left
