"""The facts of operand pods: node, readiness, and the kubelet's reason if a pod is not ready."""

from collections.abc import Iterable
from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Pod
from upgrader.core.model.operands import COMPONENTS, Operand, OperandPod, PartPod
from upgrader.core.workloads.gangs import ENDED
from upgrader.reconcile.facts.pod_facts import is_own_pod
from upgrader.stack.node_pods.pod_results import is_being_created, shorten_message, silence_of
from upgrader.stack.operands.containers import WAIT_PREFIX

_BY_NAME = {f"{WAIT_PREFIX}{operand.value.lower()}": operand for operand in Operand}


def own_pods(pods: Iterable[Pod], namespace: str, stack: str) -> list[Pod]:
    """The operator's own pods of a stack, which are in its own namespace."""
    mine = (pod for pod in pods if pod.metadata.labels.get(names.LABEL_STACK) == stack)
    return [pod for pod in mine if is_own_pod(pod, namespace)]


def operand_pod(pod: Pod, namespace: str) -> OperandPod | None:
    """An active pod of an operand in the operator's namespace; None for every other pod."""
    operand = COMPONENTS.get(pod.metadata.labels.get(names.LABEL_COMPONENT, "")) if is_own_pod(pod, namespace) else None
    return OperandPod(operand=operand, **_pod_fields(pod)) if operand is not None and is_active_pod(pod) else None


def part_pod(pod: Pod) -> PartPod:
    """A pod of another part that runs on nodes."""
    return PartPod(**_pod_fields(pod))


def is_active_pod(pod: Pod) -> bool:
    """Whether a pod has neither ended nor is being deleted."""
    return pod.status.phase not in ENDED and pod.metadata.deletion_timestamp is None


def _pod_fields(pod: Pod) -> dict[str, Any]:
    if any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions):
        return {"node": pod.spec.node_name, "ready": True}
    return {"node": pod.spec.node_name, "trouble": pod_trouble(pod), "silence": silence_of(pod)}


def pod_trouble(pod: Pod) -> str:
    """Why a pod of an operand is not ready; empty if no fault is known."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        trouble = _container_trouble(status)
        if trouble:
            return trouble
    return ""


def _container_trouble(status: ContainerStatus) -> str:
    """Why a container does not run; empty if it has succeeded, or no fault is known."""
    waiting, ended = status.state.waiting, status.state.terminated
    if (ended is not None and not ended.exit_code) or is_being_created(status):
        return ""
    last = ended or status.last_state.terminated
    if waiting is not None and (waiting.message or waiting.reason) and last is None:
        image = f"image {status.image}: " if "Image" in waiting.reason and status.image else ""
        return f"{image}{waiting.reason}: {shorten_message(waiting.message)}".removesuffix(": ")
    if last is not None and last.exit_code and not status.ready:
        words = shorten_message(last.message) or last.reason or "nothing"
        return (
            f"container {status.name} ended with {last.exit_code}, {status.restart_count} restart(s); its output: "
            f"{words}"
        )
    if status.name in _BY_NAME and waiting is None:
        return f"it waits for {_BY_NAME[status.name].value}"
    return ""
