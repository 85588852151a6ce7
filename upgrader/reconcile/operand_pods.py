"""Pods of operands as the rules see them: on which node, ready or not, and in the kubelet's words why not."""

from collections.abc import Iterable

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Pod
from upgrader.core.operands import COMPONENTS, Operand, OperandPod
from upgrader.stack.containers import AFTER
from upgrader.stack.errands import shortened

ENDED = frozenset({"Succeeded", "Failed"})
_BY_NAME = {f"{AFTER}{operand.value.lower()}": operand for operand in Operand}


def own_pods(pods: Iterable[Pod], namespace: str, stack: str) -> list[Pod]:
    """Of all pods those that were made for a stack, which are in our own namespace."""
    mine = (one for one in pods if one.metadata.labels.get(names.LABEL_STACK) == stack)
    return [one for one in mine if one.metadata.namespace == namespace and names.LABEL_COMPONENT in one.metadata.labels]


def operand_pod(pod: Pod) -> OperandPod | None:
    """A pod of an operand; None for every other, and for one that has ended or is being ended."""
    operand = COMPONENTS.get(pod.metadata.labels.get(names.LABEL_COMPONENT, ""))
    if operand is None or pod.status.phase in ENDED or pod.metadata.deletion_timestamp is not None:
        return None
    ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
    return OperandPod(node=pod.spec.node_name, operand=operand, ready=ready, trouble="" if ready else _trouble(pod))


def _trouble(pod: Pod) -> str:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        said = _said(status)
        if said:
            return said
    return ""


def _said(status: ContainerStatus) -> str:
    """What keeps a container from its work; empty where it is done, or nothing is known to be wrong."""
    waiting, ended = status.state.waiting, status.state.terminated
    if ended is not None and not ended.exit_code:
        return ""
    last = ended or status.last_state.terminated
    if waiting is not None and (waiting.message or waiting.reason) and last is None:
        image = f"image {status.image}: " if "Image" in waiting.reason and status.image else ""
        return f"{image}{waiting.reason}: {shortened(waiting.message)}".removesuffix(": ")
    if last is not None and last.exit_code and not status.ready:
        words = shortened(last.message) or last.reason or "nothing"
        return (
            f"container {status.name} ended with {last.exit_code}, {status.restart_count} restart(s); it said: {words}"
        )
    if status.name in _BY_NAME and waiting is None:
        return f"it waits for {_BY_NAME[status.name].value}"
    return ""
