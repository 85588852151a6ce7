"""A node that is closed for a phase that changes it: without pods with GPUs, and cordoned."""

from collections.abc import Iterable

from upgrader.api.kubernetes import Pod
from upgrader.api.resources import GPU_STACKS, NODES, PODS
from upgrader.cli.first_node.first_hour import FirstHour
from upgrader.core.errors import BlockedError
from upgrader.core.first_node.journal import PutBack, UndoAction
from upgrader.core.naming import list_names
from upgrader.core.node_protocol.gpu_resources import NVIDIA_DOMAIN, is_gpu


async def close_node(hour: FirstHour) -> None:
    """Cordon the node, unless it is.

    Raises:
        BlockedError: pods with GPUs run there.
    """
    await _refuse_gpu_pods(hour)
    node = await hour.read_node()
    if not node.spec.unschedulable:
        hour.record_change(PutBack(action=UndoAction.UNCORDON, name=hour.node))
        await hour.context.cluster.merge(NODES, node.metadata, {"spec": {"unschedulable": True}})
        await _refuse_gpu_pods(hour)  # one may have been bound before the cordon


async def _refuse_gpu_pods(hour: FirstHour) -> None:
    pods = await hour.context.cluster.list(PODS, fields=f"spec.nodeName={hour.node}")
    stacks = await hour.context.cluster.list(GPU_STACKS)
    found = find_gpu_pods(pods, [stack.spec.device_plugin.resource_name for stack in stacks])
    if found:
        raise BlockedError(
            f"node {hour.node} runs pods with GPUs: {list_names(found)}",
            resolution="Wait until they have ended, or drain the node.",
        )


def find_gpu_pods(pods: Iterable[Pod], resources: Iterable[str]) -> list[str]:
    """Names of pods that have not ended and that request GPUs, of the stacks or of NVIDIA, or claim devices."""
    known = tuple(resources)
    return [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in pods
        if pod.status.phase not in {"Succeeded", "Failed"} and (pod.spec.resource_claims or _requests_gpus(pod, known))
    ]


def _requests_gpus(pod: Pod, resources: tuple[str, ...]) -> bool:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    names = {name for each in containers for name in (*each.resources.requests, *each.resources.limits)}
    return any(
        name.startswith(NVIDIA_DOMAIN) or any(is_gpu(name, resource) for resource in resources) for name in names
    )
