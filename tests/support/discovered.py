"""What the API server's discovery lists: a while after a kind is served, and remembered by a client for a minute."""

from collections.abc import Iterable
from typing import Any

from upgrader.api.resources import ResourceKind
from upgrader.kube.client import KubeCluster


async def discovered(kubeconfig: str, kinds: Iterable[ResourceKind[Any]]) -> bool:
    """Whether all kinds are listed in their version, for a client that has read nothing yet."""
    async with await KubeCluster.connect(kubeconfig) as cluster:
        served = await cluster.served()
    return all(kind.version in served.get((kind.group, kind.plural), ()) for kind in kinds)
