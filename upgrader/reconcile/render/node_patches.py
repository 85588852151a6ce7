"""The marks that upgrades and plans put on a Node, as merge patches; pure.

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


def close(node: Node, upgrade: NodeUpgrade, now: str) -> dict[str, Any] | None:
    """Taint (added `now`, RFC 3339) and claim; None where both are there already."""
    ours = Taint(key=names.TAINT_MAINTENANCE, value=upgrade.spec.group, effect="NoSchedule", time_added=now)
    blocked = node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) == upgrade.metadata.uid
    if blocked and any((one.key, one.value) == (ours.key, ours.value) for one in node.spec.taints):
        return None
    taints = [*foreign_taints(node), msgspec.to_builtins(ours)]
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
    """Driver none, operands off, revision taken; what another operator deploys there goes in the same write."""
    kept = node.metadata.annotations.get(names.ANNOTATION_ADOPTED)
    adopted = names.ANNOTATION_ADOPT in node.metadata.annotations
    over = adoption.taken_over(node.metadata.labels, kept) if adopted else None
    if over is None:
        return {"metadata": {"labels": dict(_OFF)}}
    labels, before = over
    return {"metadata": {"labels": {**_OFF, **labels}, "annotations": {names.ANNOTATION_ADOPTED: before}}}


def remove_driver(had: RemovedDriver) -> dict[str, Any]:
    """The driver away that does not fit the running kernel, and what it was, in one write."""
    kept = msgspec.json.encode(had).decode()
    return {"metadata": {"labels": dict(_OFF), "annotations": {names.ANNOTATION_REMOVED_DRIVER: kept}}}


def driver_away(node: Node, upgrade: NodeUpgrade, goal: NodeState) -> dict[str, Any] | None:
    """The driver away that a node upgrade switched on before the node rebooted into another kernel.

    What the node had before is kept: the next upgrade brings it back to that, and to nothing newer. A node that is
    being installed had nothing. The kubelet is by now as the walk, to `goal`, has made it. None where all is so
    already.
    """
    spec, there = upgrade.spec, node.metadata.annotations
    settings = _settings(goal)
    if (
        spec.reason is not UpgradeReason.INSTALL
        and read_removed_driver(there.get(names.ANNOTATION_REMOVED_DRIVER)) is None
    ):
        had = spec.target if spec.reason is UpgradeReason.REPAIR else spec.source
        kernel = node.status.node_info.kernel_version
        return _with(
            remove_driver(RemovedDriver(driver=spec.source.driver_key, revision=had.revision, kernel=kernel)), settings
        )
    off = all(node.metadata.labels.get(key) == value for key, value in _OFF.items())
    return None if off and _tells(node, settings) else _with(operands_off(node), settings)


def driver_on(node: Node, goal: NodeState) -> dict[str, Any]:
    """The keys of driver, runtime hook and plugin; operands stay off until the driver is loaded.

    With them goes what the upgrade has set of the kubelet, where there is or was something.
    """
    labels = {
        names.LABEL_DRIVER: goal.driver_key or names.NONE,
        names.LABEL_RUNTIME: goal.runtime_key or None,
        names.LABEL_DEVICE_PLUGIN: goal.plugin_key or None,
    }
    patch, settings = {"metadata": {"labels": labels}}, _settings(goal)
    return patch if _tells(node, settings) else _with(patch, settings)


def operands_on() -> dict[str, Any]:
    """The device plugin and what else works on a loaded driver."""
    return {"metadata": {"labels": {names.LABEL_OPERANDS: names.ON}}}


def give_back(node: Node, uid: str, revision: str) -> dict[str, Any]:
    """Taint and claim go; the revision that the walk arrived at comes, where the operands are on again.

    `uid`, of the NodeUpgrade that releases the node, stays: so this changes the Node also where nothing was on it.

    A node that was taken over and on which nothing of ours ran goes back to whoever had it.
    """
    labels: dict[str, str] = {}
    there, on = node.metadata.annotations, node.metadata.labels.get(names.LABEL_OPERANDS) == names.ON
    annotations: dict[str, str | None] = {names.ANNOTATION_CLAIMED_BY: None, names.ANNOTATION_RELEASED_BY: uid}
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


def _settings(goal: NodeState) -> dict[str, str | None]:
    """What a node upgrade has set of the kubelet, as the annotation that says so."""
    return {names.ANNOTATION_KUBELET: settings_text(goal.kubelet_settings.items()) or None}


def _tells(node: Node, annotations: dict[str, str | None]) -> bool:
    return all(node.metadata.annotations.get(key) == value for key, value in annotations.items())


def _with(patch: dict[str, Any], annotations: dict[str, str | None]) -> dict[str, Any]:
    meta = patch["metadata"]
    return {"metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


def reserve(node: Node, plan: str) -> dict[str, Any]:
    """The soft taint that keeps others away while a plan waits for what runs there."""
    ours = Taint(key=names.TAINT_RESERVED, value=plan, effect="PreferNoSchedule")
    return {"spec": {"taints": [*_without(node, names.TAINT_RESERVED), msgspec.to_builtins(ours)]}}


def unreserve(node: Node) -> dict[str, Any]:
    """The same without it."""
    return {"spec": {"taints": _without(node, names.TAINT_RESERVED) or None}}


def reserved_by(node: Node) -> str:
    """The plan that a node is kept free for; empty where there is none."""
    return next((one.value for one in node.spec.taints if one.key == names.TAINT_RESERVED), "")


def foreign_taints(node: Node) -> list[dict[str, Any]]:
    """The taints of others, as they go on the wire; a node that a node upgrade takes is not waited for any longer."""
    return _without(node, names.TAINT_MAINTENANCE, names.TAINT_RESERVED)


def _without(node: Node, *keys: str) -> list[dict[str, Any]]:
    # Every other taint is written back as it was read, under the same resourceVersion.
    return [msgspec.to_builtins(one) for one in node.spec.taints if one.key not in keys]
