"""Pods of operands as the rules see them: on which node, ready or not, and in the kubelet's words why not."""

from collections.abc import Iterable
from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Pod
from upgrader.core.model.operands import COMPONENTS, Operand, OperandPod, PartPod
from upgrader.core.workloads.gangs import ENDED
from upgrader.reconcile.facts.pod_facts import ours
from upgrader.stack.containers import AFTER
from upgrader.stack.pod_results import being_made, shortened, silence_of

_BY_NAME = {f"{AFTER}{operand.value.lower()}": operand for operand in Operand}


def own_pods(pods: Iterable[Pod], namespace: str, stack: str) -> list[Pod]:
    """Of all pods those that were made for a stack, which are in our own namespace."""
    mine = (one for one in pods if one.metadata.labels.get(names.LABEL_STACK) == stack)
    return [one for one in mine if ours(one, namespace)]


def operand_pod(pod: Pod, namespace: str) -> OperandPod | None:
    """A pod of an operand in our own namespace; None for every other, and for one that has ended or is being ended."""
    operand = COMPONENTS.get(pod.metadata.labels.get(names.LABEL_COMPONENT, "")) if ours(pod, namespace) else None
    return OperandPod(operand=operand, **_facts(pod)) if operand is not None and counts(pod) else None


def part_pod(pod: Pod) -> PartPod:
    """A pod of something else that runs on nodes."""
    return PartPod(**_facts(pod))


def counts(pod: Pod) -> bool:
    """Whether a pod has neither ended nor is being ended."""
    return pod.status.phase not in ENDED and pod.metadata.deletion_timestamp is None


def _facts(pod: Pod) -> dict[str, Any]:
    if any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions):
        return {"node": pod.spec.node_name, "ready": True}
    return {"node": pod.spec.node_name, "trouble": _trouble(pod), "silence": silence_of(pod)}


def _trouble(pod: Pod) -> str:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        said = _said(status)
        if said:
            return said
    return ""


def _said(status: ContainerStatus) -> str:
    """What keeps a container from its work; empty where it is done, or nothing is known to be wrong."""
    waiting, ended = status.state.waiting, status.state.terminated
    if (ended is not None and not ended.exit_code) or being_made(status):
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
