"""What identifies a node and its neighbours, so that the report can hide it; and what the cluster knows of the node."""

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from upgrader.api.resources import GPU_STACKS, PODS, ResourceKind
from upgrader.core.errors import ConfigurationError
from upgrader.reconcile.runtime.context import Context

RAW_NODES: ResourceKind[dict[str, Any]] = ResourceKind(
    group="", version="v1", kind="Node", plural="nodes", namespaced=False, type=dict[str, Any]
)
SHOWN_LABELS = re.compile(r"(?:gpu-upgrader\.io|nvidia\.com|feature\.node\.kubernetes\.io)/")
"""Labels whose values state versions and hardware. Others may be names of customers and places."""
SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces whose names and pods are the same in every cluster."""


async def read_node(context: Context, name: str) -> dict[str, Any]:
    """The Node with all of its fields.

    Raises:
        ConfigurationError: it is not found.
    """
    node = await context.cluster.get(RAW_NODES, name)
    if node is None:
        raise ConfigurationError(f"node {name} not found")
    return node


async def collect_names(context: Context, node: str) -> set[str]:
    """Names of hosts, namespaces, pods and registries that a report of this node may contain."""
    nodes = await context.cluster.list(RAW_NODES)
    pods = await context.cluster.list(PODS, fields=f"spec.nodeName={node}")
    stacks = await context.cluster.list(GPU_STACKS)
    public = SYSTEM_NAMESPACES | {context.stack.namespace}
    found = {socket.gethostname(), *_registry_hosts([context.stack.node_image])}
    for each in nodes:
        found.update(_host_names(each))
    for pod in pods:
        if pod.metadata.namespace not in public:
            found |= {pod.metadata.name, pod.metadata.namespace}
        found.update(_registry_hosts(container.image for container in pod.spec.containers))
    for stack in stacks:
        found.update(_registry_hosts(_texts_of(msgspec.to_builtins(stack.spec))))
    return found


def describe_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Node that describe its hardware and software."""
    status, meta = node.get("status", {}), node.get("metadata", {})
    conditions = ("type", "status", "reason")
    return {
        "nodeInfo": status.get("nodeInfo", {}),
        "capacity": status.get("capacity", {}),
        "allocatable": status.get("allocatable", {}),
        "conditions": [{key: each.get(key, "") for key in conditions} for each in status.get("conditions", [])],
        "taints": [taint.get("key", "") for taint in node.get("spec", {}).get("taints", [])],
        "unschedulable": node.get("spec", {}).get("unschedulable", False),
        "labels": {key: value for key, value in meta.get("labels", {}).items() if SHOWN_LABELS.match(key)},
    }


def _host_names(node: Mapping[str, Any]) -> Iterator[str]:
    yield node.get("metadata", {}).get("name", "")
    yield node.get("metadata", {}).get("labels", {}).get("kubernetes.io/hostname", "")
    for address in node.get("status", {}).get("addresses", []):
        yield address.get("address", "")


def _registry_hosts(references: Iterable[str]) -> Iterator[str]:
    for reference in references:
        host, slash, _ = reference.partition("/")
        if slash and ("." in host or ":" in host):
            yield host.partition(":")[0]


def _texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_of(each)
