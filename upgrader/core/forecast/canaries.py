"""Canaries: one node of each class is upgraded before all others, so that a driver that fails stops no gang.

A class is a GPU model on a kernel under a driver. Its canary is its smallest idle node; if none is idle, its smallest
group, since a full fleet needs the warning most and those gangs are stopped once in any case. A canary of one class
proves nothing about another class: each class waits for its own canary.
"""

from collections.abc import Container, Iterable, Mapping

from upgrader.core.forecast.bin_packing import Unit
from upgrader.core.model.fleet import NodeFacts

MODEL_LABEL = "nvidia.com/gpu.product"
"""GPU feature discovery's label for the model of a node's GPUs."""


def node_class(node: NodeFacts) -> str:
    """GPU model, kernel and source driver (its image, or its version by the feature labels), in the stored form."""
    parts = (node.labels.get(MODEL_LABEL, ""), node.kernel, node.driver_key or node.driver_version_label)
    return ", ".join(part or "unknown" for part in parts)


def unit_classes(unit: Unit, nodes: Mapping[str, NodeFacts]) -> frozenset[str]:
    """The classes of a group's nodes."""
    return frozenset(node_class(nodes[name]) for name in unit.group.nodes)


def choose_canaries(units: Iterable[Unit], nodes: Mapping[str, NodeFacts], proven: Container[str] = ()) -> list[Unit]:
    """One group for each class of these groups, idle and small groups first; a group may be the canary of several.

    In this order each has a class that none before it has, so that no gang is stopped for a class that an idle node
    has proven. `proven`: classes of which a canary was upgraded already.
    """
    by_class: dict[str, Unit] = {}
    for unit in sorted(units, key=_preference_order):
        for name in unit_classes(unit, nodes):
            by_class.setdefault(name, unit)
    return list({unit.group.name: unit for name, unit in by_class.items() if name not in proven}.values())


def _preference_order(unit: Unit) -> tuple[object, ...]:
    group = unit.group
    busy = bool(group.gangs or group.evicted)
    return busy, unit.release, group.gpus, len(group.nodes), unit.order
