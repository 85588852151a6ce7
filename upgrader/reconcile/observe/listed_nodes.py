"""Nodes listed from the API server for one decision, in place of those that the cache has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from upgrader.api.kubernetes import Node
from upgrader.api.resources import NODES
from upgrader.reconcile.runtime.context import Context, anew


@dataclass(frozen=True, kw_only=True)
class ListedNodes:
    """The Nodes port over one list."""

    nodes: Mapping[str, Node]

    def snapshot(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return self.nodes


async def list_nodes(context: Context) -> Context:
    """The same ports with all nodes, and pods, as the API server has them now; a cache out of step stays out of step.

    A watch that a network has cut in half says nothing for minutes, and its cache does not know that it is old.

    Raises:
        ClusterError: the API server refused or did not answer.
    """
    if context.nodes.snapshot() is None:
        return anew(context)
    nodes = {node.metadata.name: node for node in await context.cluster.list(NODES)}
    return replace(anew(context), nodes=ListedNodes(nodes=nodes))
