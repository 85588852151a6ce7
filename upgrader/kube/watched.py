"""Reads from informers, without requests. They may be slightly old: for waits only, not before writes."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from upgrader.api.kubernetes import Node, Pod
from upgrader.api.resources import JOBS, NAMESPACES, NODES, PODS, ResourceKind
from upgrader.kube.informer import Informer, WatchSource

T = TypeVar("T")

BY_NODE = "spec.nodeName="


class ReadableCluster(WatchSource, Protocol):
    """The methods of KubeCluster that are used here."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None: ...
    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]: ...
    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]: ...


class WatchedReads:
    """Reads nodes, pods, namespaces and the Jobs of one namespace from informers, and all else by requests.

    An informer that is out of sync is replaced by requests. Implements ports.Reads. `run()` must run in parallel, and
    also `nodes.run()`.
    """

    def __init__(
        self,
        cluster: ReadableCluster,
        nodes: Informer[Node],
        namespace: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        """`namespace`: namespace of the Jobs of the operator."""
        self._cluster, self._nodes, self._namespace = cluster, nodes, namespace
        self._pods = Informer(cluster, PODS, index=_node_of, clock=clock, pause=pause)
        self._namespaces = Informer(cluster, NAMESPACES, clock=clock, pause=pause)
        self._jobs = Informer(cluster, JOBS, namespace, clock=clock, pause=pause)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self._pods, self._namespaces, self._jobs):
                group.create_task(informer.run())

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        """See ports.Cluster."""
        informer = self._informer(kind, namespace)
        if informer is not None:
            in_step, item = informer.find(name, namespace)
            if in_step:
                return cast("T | None", item)
        return await self._cluster.get(kind, name, namespace)

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """See ports.Cluster."""
        items: Sequence[Any] | None = None
        if kind == PODS and not namespace and not labels and fields.startswith(BY_NODE):
            items = self._pods.indexed(fields.removeprefix(BY_NODE))
        elif kind != JOBS and not namespace and not labels and not fields:
            informer = self._informer(kind)
            snapshot = informer.snapshot() if informer is not None else None
            items = None if snapshot is None else list(snapshot.values())
        if items is not None:
            return items
        return await self._cluster.list(kind, namespace, labels=labels, fields=fields)

    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """See ports.Cluster."""
        return await self._cluster.served()

    def _informer(self, kind: ResourceKind[Any], namespace: str = "") -> Informer[Any] | None:
        if kind == JOBS and namespace != self._namespace:
            return None
        informers: dict[str, Informer[Any]] = {
            NODES.kind: self._nodes,
            PODS.kind: self._pods,
            NAMESPACES.kind: self._namespaces,
            JOBS.kind: self._jobs,
        }
        informer = informers.get(kind.kind)
        return informer if kind in (NODES, PODS, NAMESPACES, JOBS) else None


def _node_of(pod: Pod) -> str:
    return pod.spec.node_name
