"""What a loop has derived from the cluster, kept from one of its looks to the next: speed only, never a truth."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from upgrader.api.kubernetes import Node
from upgrader.core.model.fleet import NodeFacts
from upgrader.reconcile.facts.gangs import GangCache
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.facts.object_cache import ObjectCache


@dataclass
class FactCache:
    """Of one stack's loop, or of one plan's."""

    gangs: GangCache = field(default_factory=GangCache)
    _nodes: ObjectCache[NodeFacts] = field(default_factory=ObjectCache)

    def read_nodes(self, nodes: Iterable[Node], resource: str, former: tuple[str, ...]) -> dict[str, NodeFacts]:
        """All nodes of the cluster as the rules see them, by name; see `node_facts`."""
        self._nodes.begin()
        settings = (resource, former)
        return {
            node.metadata.name: self._nodes.derive(node.metadata, settings, partial(node_facts, node, resource, former))
            for node in nodes
        }


class FactCaches:
    """Of all loops of a controller, by the kind and name of the object that each looks after."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], FactCache] = {}

    def of(self, kind: str, name: str) -> FactCache:
        """Of one object's loop."""
        return self._kept.setdefault((kind, name), FactCache())

    def forget(self, kind: str, name: str) -> None:
        """Let go of what belongs to an object that is gone or over."""
        self._kept.pop((kind, name), None)
