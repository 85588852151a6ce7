"""A pod on a node that is created, waited for, read and deleted."""

from collections.abc import Awaitable, Callable

from upgrader.api.kubernetes import Pod
from upgrader.api.resources import PODS
from upgrader.core.errors import ClusterError
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.parts import Manifest

POLL_SECONDS = 1.0
MARGIN_SECONDS = 30
"""How long the pod may take to be reported as ended after its deadline."""

Sleep = Callable[[float], Awaitable[None]]


async def run_node_pod(context: Context, manifest: Manifest, container: str, deadline: int, sleep: Sleep) -> bytes:
    """Run a pod to its end; returns the log of its container. It is deleted, also if it fails.

    Raises:
        ClusterError: it did not end within its deadline, in seconds, or was deleted.
    """
    pod = await context.cluster.create(PODS, manifest)
    try:
        await _wait_for_end(context, pod, deadline, sleep)
        return await context.cluster.read_log(pod, container)
    finally:
        await context.cluster.delete(PODS, pod.metadata)


async def _wait_for_end(context: Context, pod: Pod, deadline: int, sleep: Sleep) -> None:
    name, namespace = pod.metadata.name, pod.metadata.namespace
    for _ in range(int((deadline + MARGIN_SECONDS) / POLL_SECONDS)):
        present = await context.cluster.get(PODS, name, namespace)
        if present is None:
            raise ClusterError(f"pod {namespace}/{name} was deleted before it ended")
        if present.status.phase in {"Succeeded", "Failed"}:
            return
        await sleep(POLL_SECONDS)
    raise ClusterError(
        f"pod {namespace}/{name} has not ended within {deadline} s",
        resolution="See the events of the pod: the node may not be able to pull the node image.",
    )
