"""Merge patches for the taints, labels and annotations of upgrades and plans on a Node; pure.

`spec.unschedulable` is never among them (law 3).
"""

from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Node, Taint
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.driver_image.missing_images import read_removed_driver
from upgrader.core.gpu_stack import adoption
from upgrader.core.model.fleet import RemovedDriver, settings_text
from upgrader.core.model.phases import UpgradeReason


def close_node(node: Node, upgrade: NodeUpgrade, now: str) -> dict[str, Any] | None:
    """Add taint (with time `now`, RFC 3339) and claim; None if both exist."""
    maintenance_taint = Taint(
        key=names.TAINT_MAINTENANCE, value=upgrade.spec.group, effect="NoSchedule", time_added=now
    )
    blocked = node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) == upgrade.metadata.uid
    if blocked and any(
        (taint.key, taint.value) == (maintenance_taint.key, maintenance_taint.value) for taint in node.spec.taints
    ):
        return None
    taints = [*foreign_taints(node), msgspec.to_builtins(maintenance_taint)]
    return {
        "metadata": {"annotations": {names.ANNOTATION_CLAIMED_BY: upgrade.metadata.uid}},
        "spec": {"taints": taints},
    }


_OFF: dict[str, str | None] = {
    names.LABEL_DRIVER: names.NONE,
    names.LABEL_OPERANDS: names.OFF,
    names.LABEL_REVISION: None,
}


def operands_off(node: Node) -> dict[str, Any]:
    """Set driver none and operands off, remove the revision, and switch off or pause another operator's operands."""
    kept = node.metadata.annotations.get(names.ANNOTATION_ADOPTED)
    adopted = names.ANNOTATION_ADOPT in node.metadata.annotations
    over = adoption.taken_over(node.metadata.labels, kept) if adopted else None
    if over is None:
        return {"metadata": {"labels": dict(_OFF)}}
    labels, before = over
    return {"metadata": {"labels": {**_OFF, **labels}, "annotations": {names.ANNOTATION_ADOPTED: before}}}


def remove_driver(had: RemovedDriver) -> dict[str, Any]:
    """Remove the driver that does not fit the running kernel, and record it, in one write."""
    kept = msgspec.json.encode(had).decode()
    return {"metadata": {"labels": dict(_OFF), "annotations": {names.ANNOTATION_REMOVED_DRIVER: kept}}}


def driver_away(node: Node, upgrade: NodeUpgrade, goal: NodeState) -> dict[str, Any] | None:
    """Remove the driver that a node upgrade switched on before the node rebooted into another kernel.

    The former driver and revision are recorded: the next upgrade restores them, and nothing newer. A node that is
    being installed had none. The node already has the settings of `goal`. None if nothing changes.
    """
    spec, there = upgrade.spec, node.metadata.annotations
    settings = _settings_annotations(goal)
    if (
        spec.reason is not UpgradeReason.INSTALL
        and read_removed_driver(there.get(names.ANNOTATION_REMOVED_DRIVER)) is None
    ):
        had = spec.target if spec.reason is UpgradeReason.REPAIR else spec.source
        kernel = node.status.node_info.kernel_version
        return _add_annotations(
            remove_driver(RemovedDriver(driver=spec.source.driver_key, revision=had.revision, kernel=kernel)), settings
        )
    off = all(node.metadata.labels.get(key) == value for key, value in _OFF.items())
    return None if off and _has_annotations(node, settings) else _add_annotations(operands_off(node), settings)


def driver_on(node: Node, goal: NodeState) -> dict[str, Any]:
    """Set the keys of driver, runtime hook and plugin; operands stay off until the driver is loaded.

    The same patch records the settings of the upgrade on the node, if there are or were any.
    """
    labels = {
        names.LABEL_DRIVER: goal.driver_key or names.NONE,
        names.LABEL_RUNTIME: goal.runtime_key or None,
        names.LABEL_DEVICE_PLUGIN: goal.plugin_key or None,
    }
    patch, settings = {"metadata": {"labels": labels}}, _settings_annotations(goal)
    return patch if _has_annotations(node, settings) else _add_annotations(patch, settings)


def operands_on(node: Node) -> dict[str, Any]:
    """Switch on the device plugin and other operands that need a loaded driver, also those of another operator."""
    labels, annotations = _resume_operands(node)
    patch: dict[str, Any] = {"labels": {names.LABEL_OPERANDS: names.ON} | labels}
    return {"metadata": patch | ({"annotations": annotations} if annotations else {})}


def _resume_operands(node: Node) -> tuple[dict[str, str], dict[str, str | None]]:
    """Labels and annotations by which another operator's paused operands start again; empty if none is paused."""
    kept = node.metadata.annotations.get(names.ANNOTATION_ADOPTED)
    labels, left = adoption.resumed_labels(node.metadata.labels, kept)
    return labels, {names.ANNOTATION_ADOPTED: left} if left != kept else {}


def release_node(node: Node, uid: str, revision: str) -> dict[str, Any]:
    """Remove taint and claim, and set the revision that the node has reached if its operands are on.

    `uid` of the releasing NodeUpgrade is recorded, so this changes the Node even if it had no claim.

    An adopted node on which no operand of this operator ran is handed back to the other operator. Operands of that
    operator that are still paused start again.
    """
    labels, resumed = _resume_operands(node)
    there, on = node.metadata.annotations, node.metadata.labels.get(names.LABEL_OPERANDS) == names.ON
    annotations = {names.ANNOTATION_CLAIMED_BY: None, names.ANNOTATION_RELEASED_BY: uid} | resumed
    if on and names.LABEL_REVISION not in node.metadata.labels and revision:
        labels[names.LABEL_REVISION] = revision
    if on and names.ANNOTATION_REMOVED_DRIVER in there:
        annotations[names.ANNOTATION_REMOVED_DRIVER] = None
    if not on and names.ANNOTATION_ADOPTED in there and names.ANNOTATION_REMOVED_DRIVER not in there:
        labels |= adoption.handed_back(node.metadata.labels, there[names.ANNOTATION_ADOPTED])
        annotations[names.ANNOTATION_ADOPTED] = None
    return {
        "metadata": {"annotations": annotations, "labels": labels},
        "spec": {"taints": foreign_taints(node) or None},
    }


def _settings_annotations(goal: NodeState) -> dict[str, str | None]:
    """The annotations with the settings that a node upgrade has made on its node."""
    return {
        names.ANNOTATION_KUBELET: settings_text(goal.kubelet_settings.items()) or None,
        names.ANNOTATION_PARAMETERS: settings_text(goal.module_parameters.items()) or None,
    }


def _has_annotations(node: Node, annotations: dict[str, str | None]) -> bool:
    return all(node.metadata.annotations.get(key) == value for key, value in annotations.items())


def _add_annotations(patch: dict[str, Any], annotations: dict[str, str | None]) -> dict[str, Any]:
    meta = patch["metadata"]
    return {"metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


def reserve_node(node: Node, plan: str) -> dict[str, Any]:
    """Add the soft taint that keeps other pods away while a plan waits for completion."""
    reserved_taint = Taint(key=names.TAINT_RESERVED, value=plan, effect="PreferNoSchedule")
    return {"spec": {"taints": [*_other_taints(node, names.TAINT_RESERVED), msgspec.to_builtins(reserved_taint)]}}


def unreserve_node(node: Node) -> dict[str, Any]:
    """Remove the soft taint."""
    return {"spec": {"taints": _other_taints(node, names.TAINT_RESERVED) or None}}


def reserved_by(node: Node) -> str:
    """The plan that reserves a node; empty if there is none."""
    return next((taint.value for taint in node.spec.taints if taint.key == names.TAINT_RESERVED), "")


def foreign_taints(node: Node) -> list[dict[str, Any]]:
    """The taints of others, as wire objects; the reservation is dropped, since the upgrade has the node now."""
    return _other_taints(node, names.TAINT_MAINTENANCE, names.TAINT_RESERVED)


def _other_taints(node: Node, *keys: str) -> list[dict[str, Any]]:
    # Every other taint is written back unchanged, under the same resourceVersion.
    return [msgspec.to_builtins(taint) for taint in node.spec.taints if taint.key not in keys]
