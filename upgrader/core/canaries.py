"""Canaries: one node of each class is visited before all others, so that a driver that fails stops nobody.

A class is a GPU model on a kernel under a driver. Its canary is its smallest idle node; where none is idle its smallest
closure, since a full fleet needs the warning most and those gangs are stopped once anyway.
"""

from collections.abc import Iterable, Mapping, Sequence

from upgrader.core.fleet import NodeFacts
from upgrader.core.packing import Unit

MODEL_LABEL = "nvidia.com/gpu.product"
"""GPU feature discovery's label for the model of a node's GPUs."""

Class = tuple[str, str, str]


def node_class(node: NodeFacts) -> Class:
    """GPU model, kernel and the driver that it leaves (its image, or what the feature labels say)."""
    return node.labels.get(MODEL_LABEL, ""), node.kernel, node.driver_key or node.driver_version_label


def canaries(units: Iterable[Unit], nodes: Mapping[str, NodeFacts]) -> list[Unit]:
    """One closure for each class that these have, in the order of classes; one may stand for several."""
    every = sorted(units, key=_preferred)
    by_class: dict[Class, Unit] = {}
    for unit in every:
        for name in unit.closure.nodes:
            by_class.setdefault(node_class(nodes[name]), unit)
    return list(_chosen([by_class[key] for key in sorted(by_class)]))


def _chosen(units: Sequence[Unit]) -> Iterable[Unit]:
    return {unit.closure.name: unit for unit in units}.values()


def _preferred(unit: Unit) -> tuple[object, ...]:
    closure = unit.closure
    busy = bool(closure.gangs or closure.evicted)
    return busy, unit.release, closure.gpus, len(closure.nodes), unit.order
