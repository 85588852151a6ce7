"""The embedded cluster: a real Kubernetes in network namespaces of its own, from nothing and leaving nothing."""

from upgrader.devcluster.binaries import build_all, cosign, kubelet
from upgrader.devcluster.box_node import BoxNode
from upgrader.devcluster.cluster import Cluster
from upgrader.devcluster.kwok_node import KwokNode
from upgrader.devcluster.lifecycle import Status, down, load, names, status, up
from upgrader.devcluster.nodes import Node, NodeState
from upgrader.devcluster.spec import BoxSpec, ClusterSpec, KwokSpec, Taint

__all__ = [
    "BoxNode",
    "BoxSpec",
    "Cluster",
    "ClusterSpec",
    "KwokNode",
    "KwokSpec",
    "Node",
    "NodeState",
    "Status",
    "Taint",
    "build_all",
    "cosign",
    "down",
    "kubelet",
    "load",
    "names",
    "status",
    "up",
]
