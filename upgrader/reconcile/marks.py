"""The marks that visits and plans put on a Node, as merge patches; pure.

`spec.unschedulable` is never among them (law 3).
"""

from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Node, Taint
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade


def close(node: Node, upgrade: NodeUpgrade, now: str) -> dict[str, Any] | None:
    """Taint (added `now`, RFC 3339) and claim; None where both are there already."""
    ours = Taint(key=names.TAINT_MAINTENANCE, value=upgrade.spec.closure, effect="NoSchedule", time_added=now)
    held = node.metadata.annotations.get(names.ANNOTATION_VISIT) == upgrade.metadata.uid
    if held and any((one.key, one.value) == (ours.key, ours.value) for one in node.spec.taints):
        return None
    taints = [*foreign_taints(node), msgspec.to_builtins(ours)]
    return {
        "metadata": {"annotations": {names.ANNOTATION_VISIT: upgrade.metadata.uid}},
        "spec": {"taints": taints},
    }


def operands_off() -> dict[str, Any]:
    """Driver none, operands off, revision taken."""
    return {
        "metadata": {
            "labels": {names.LABEL_DRIVER: names.NONE, names.LABEL_OPERANDS: names.OFF, names.LABEL_REVISION: None}
        }
    }


def driver_on(goal: NodeState) -> dict[str, Any]:
    """The keys of driver and plugin; operands stay off until the driver is loaded."""
    plugin = goal.plugin_key or None
    return {
        "metadata": {"labels": {names.LABEL_DRIVER: goal.driver_key or names.NONE, names.LABEL_DEVICE_PLUGIN: plugin}}
    }


def operands_on() -> dict[str, Any]:
    """The device plugin and what else works on a loaded driver."""
    return {"metadata": {"labels": {names.LABEL_OPERANDS: names.ON}}}


def give_back(node: Node, revision: str) -> dict[str, Any]:
    """Taint and claim go; the revision that the walk arrived at comes, where the operands are on again."""
    labels: dict[str, str] = {}
    on = node.metadata.labels.get(names.LABEL_OPERANDS) == names.ON
    if on and names.LABEL_REVISION not in node.metadata.labels and revision:
        labels[names.LABEL_REVISION] = revision
    return {
        "metadata": {"annotations": {names.ANNOTATION_VISIT: None}, "labels": labels},
        "spec": {"taints": foreign_taints(node) or None},
    }


def harvest(node: Node, plan: str) -> dict[str, Any]:
    """The soft taint that keeps others away while a plan waits for what runs there."""
    ours = Taint(key=names.TAINT_HARVEST, value=plan, effect="PreferNoSchedule")
    return {"spec": {"taints": [*_without(node, names.TAINT_HARVEST), msgspec.to_builtins(ours)]}}


def unharvest(node: Node) -> dict[str, Any]:
    """The same without it."""
    return {"spec": {"taints": _without(node, names.TAINT_HARVEST) or None}}


def harvested_by(node: Node) -> str:
    """The plan that a node is kept free for; empty where there is none."""
    return next((one.value for one in node.spec.taints if one.key == names.TAINT_HARVEST), "")


def foreign_taints(node: Node) -> list[dict[str, Any]]:
    """The taints of others, as they go on the wire; a node that a visit takes is not waited for any longer."""
    return _without(node, names.TAINT_MAINTENANCE, names.TAINT_HARVEST)


def _without(node: Node, *keys: str) -> list[dict[str, Any]]:
    # Every other taint is written back as it was read, under the same resourceVersion.
    return [msgspec.to_builtins(one) for one in node.spec.taints if one.key not in keys]
