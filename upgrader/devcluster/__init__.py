"""The embedded cluster: a real Kubernetes in network namespaces of its own, from nothing and leaving nothing."""

from upgrader.devcluster.base.binaries import build_all, cosign, kubelet
from upgrader.devcluster.base.nodes import Node, NodeState
from upgrader.devcluster.base.spec import BoxSpec, ClusterSpec, KwokSpec, Taint, VmSpec
from upgrader.devcluster.box.box_node import BoxNode
from upgrader.devcluster.cluster import Cluster
from upgrader.devcluster.kwok.kwok_node import KwokNode
from upgrader.devcluster.lifecycle import (
    Status,
    down,
    kernels_of_virtual_nodes,
    lacking_for_virtual_nodes,
    load,
    names,
    status,
    up,
)
from upgrader.devcluster.virtual.node import VirtualNode

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
    "VirtualNode",
    "VmSpec",
    "build_all",
    "cosign",
    "down",
    "kernels_of_virtual_nodes",
    "kubelet",
    "lacking_for_virtual_nodes",
    "load",
    "names",
    "status",
    "up",
]
