"""Facts that a loop has derived from the cluster, cached from one step to the next; for speed only."""

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
    """The facts of one stack's or one plan's loop."""

    gangs: GangCache = field(default_factory=GangCache)
    _nodes: ObjectCache[NodeFacts] = field(default_factory=ObjectCache)

    def read_nodes(self, nodes: Iterable[Node], resource: str, former: tuple[str, ...]) -> dict[str, NodeFacts]:
        """The facts of all nodes of the cluster, by name; see `node_facts`."""
        self._nodes.begin()
        settings = (resource, former)
        return {
            node.metadata.name: self._nodes.derive(node.metadata, settings, partial(node_facts, node, resource, former))
            for node in nodes
        }


class FactCaches:
    """The facts of all loops of a controller, by kind and name of the object."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], FactCache] = {}

    def caches_of(self, kind: str, name: str) -> FactCache:
        """The facts of one object's loop."""
        return self._kept.setdefault((kind, name), FactCache())

    def forget(self, kind: str, name: str) -> None:
        """Drop the facts of a deleted or ended object."""
        self._kept.pop((kind, name), None)
