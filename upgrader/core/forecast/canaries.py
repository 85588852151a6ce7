"""Canaries: one node of each class is upgraded before all others, so that a driver that fails stops nobody.

A class is a GPU model on a kernel under a driver. Its canary is its smallest idle node; where none is idle its smallest
group, since a full fleet needs the warning most and those gangs are stopped once anyway. What one class proves says
nothing of another: each waits for a canary of its own.
"""

from collections.abc import Container, Iterable, Mapping

from upgrader.core.forecast.bin_packing import Unit
from upgrader.core.model.fleet import NodeFacts

MODEL_LABEL = "nvidia.com/gpu.product"
"""GPU feature discovery's label for the model of a node's GPUs."""


def node_class(node: NodeFacts) -> str:
    """GPU model, kernel and the driver that it leaves (its image, or what the feature labels say), as it is stored."""
    parts = (node.labels.get(MODEL_LABEL, ""), node.kernel, node.driver_key or node.driver_version_label)
    return ", ".join(part or "unknown" for part in parts)


def classes(unit: Unit, nodes: Mapping[str, NodeFacts]) -> frozenset[str]:
    """The classes that a group has nodes of."""
    return frozenset(node_class(nodes[name]) for name in unit.group.nodes)


def canaries(units: Iterable[Unit], nodes: Mapping[str, NodeFacts], proven: Container[str] = ()) -> list[Unit]:
    """One group for each class that these have, idle and small ones first; one may stand for several.

    In this order each has a class that none before it has, so no gang is stopped for what an idle node has proven.
    `proven`: classes of which a canary was upgraded already.
    """
    by_class: dict[str, Unit] = {}
    for unit in sorted(units, key=_preferred):
        for one in classes(unit, nodes):
            by_class.setdefault(one, unit)
    return list({unit.group.name: unit for one, unit in by_class.items() if one not in proven}.values())


def _preferred(unit: Unit) -> tuple[object, ...]:
    group = unit.group
    busy = bool(group.gangs or group.evicted)
    return busy, unit.release, group.gpus, len(group.nodes), unit.order
