"""Nodes listed from the API server for one decision, in place of cached ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from upgrader.api.kubernetes import Node
from upgrader.api.resources import NODES
from upgrader.reconcile.runtime.context import Context, with_fresh_pods


@dataclass(frozen=True, kw_only=True)
class ListedNodes:
    """The Nodes port over one list."""

    nodes: Mapping[str, Node]

    def snapshot(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return self.nodes


async def list_nodes(context: Context) -> Context:
    """The same ports with freshly listed nodes and pods; a cache out of sync stays out of sync.

    A half-open watch connection delivers nothing for minutes, while its cache still counts as in sync.

    Raises:
        ClusterError: the API server refused or did not answer.
    """
    if context.nodes.snapshot() is None:
        return with_fresh_pods(context)
    nodes = {node.metadata.name: node for node in await context.cluster.list(NODES)}
    return replace(with_fresh_pods(context), nodes=ListedNodes(nodes=nodes))
