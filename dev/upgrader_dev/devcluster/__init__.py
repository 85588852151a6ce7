"""The embedded cluster: a real Kubernetes in its own network namespaces, which removes everything at its end."""

from upgrader_dev.devcluster.base.binaries import build_all, cosign_program, kubelet_program
from upgrader_dev.devcluster.base.nodes import DevNode, ReportedNodeState
from upgrader_dev.devcluster.base.spec import BoxSpec, ClusterSpec, KwokSpec, NodeTaint, VmSpec
from upgrader_dev.devcluster.box.box_node import BoxNode
from upgrader_dev.devcluster.cluster import DevCluster
from upgrader_dev.devcluster.kwok.kwok_node import KwokNode
from upgrader_dev.devcluster.lifecycle import (
    ClusterStatus,
    cluster_names,
    cluster_status,
    delete_cluster,
    kernels_of_virtual_nodes,
    lacking_for_virtual_nodes,
    load_cluster,
    start_cluster,
)
from upgrader_dev.devcluster.virtual.node import VirtualNode

__all__ = [
    "BoxNode",
    "BoxSpec",
    "ClusterSpec",
    "ClusterStatus",
    "DevCluster",
    "DevNode",
    "KwokNode",
    "KwokSpec",
    "NodeTaint",
    "ReportedNodeState",
    "VirtualNode",
    "VmSpec",
    "build_all",
    "cluster_names",
    "cluster_status",
    "cosign_program",
    "delete_cluster",
    "kernels_of_virtual_nodes",
    "kubelet_program",
    "lacking_for_virtual_nodes",
    "load_cluster",
    "start_cluster",
]
