"""Reads that cost no request: from what watches have shown, so a moment old. For what only waits; acts read anew."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from upgrader.api.kubernetes import Node, Pod
from upgrader.api.resources import JOBS, NAMESPACES, NODES, PODS, ResourceKind
from upgrader.kube.informer import Informer, Source

T = TypeVar("T")

BY_NODE = "spec.nodeName="


class Cluster(Source, Protocol):
    """What is needed of KubeCluster."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None: ...
    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]: ...
    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]: ...


class Watched:
    """Nodes, pods, namespaces and the Jobs of one namespace by watches; all else, and what is out of step, by requests.

    Fits ports.Reads. `run()` must run meanwhile; `nodes` runs by itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: Informer[Node],
        namespace: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        """`namespace`: that of our own Jobs."""
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
            in_step, found = informer.find(name, namespace)
            if in_step:
                return cast("T | None", found)
        return await self._cluster.get(kind, name, namespace)

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """See ports.Cluster."""
        found: Sequence[Any] | None = None
        if kind == PODS and not namespace and not labels and fields.startswith(BY_NODE):
            found = self._pods.indexed(fields.removeprefix(BY_NODE))
        elif kind != JOBS and not namespace and not labels and not fields:
            informer = self._informer(kind)
            known = informer.snapshot() if informer is not None else None
            found = None if known is None else list(known.values())
        if found is not None:
            return found
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
        found = informers.get(kind.kind)
        return found if kind in (NODES, PODS, NAMESPACES, JOBS) else None


def _node_of(pod: Pod) -> str:
    return pod.spec.node_name
