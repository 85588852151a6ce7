"""The simulated cache of Nodes."""

from collections.abc import Mapping
from types import MappingProxyType

from upgrader.api.kubernetes import Node
from upgrader.api.resources import NODES
from upgrader_dev.simulated.apiserver.cluster import FakeCluster


class FakeNodes:
    """The Nodes port on the fake's store; `synced = False` simulates a cache that is out of sync."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.synced = True

    def snapshot(self) -> Mapping[str, Node] | None:
        if not self.synced:
            return None
        nodes = self._cluster.store.decode(NODES, "", "", "")
        return MappingProxyType({node.metadata.name: node for node in nodes})
