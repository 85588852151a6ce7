"""Results of pods on a node: from their status to an outcome with the message of the pod. Pure.

A result is the exit code together with the termination message. A message that cannot be parsed counts as a failure
and is reported: a node upgrade that failed without a message must not be taken for a success.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Condition, ContainerStatus, Job, ObjectMeta, Pod
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core import timing, untrusted
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade.upgrade_state import PodOutcome, PodResult
from upgrader.stack.naming import prepare_name, validation_name
from upgrader.stack.node_pods.validation import POWER_LIMITS
from upgrader.stack.node_pods.validation_programs import PROGRAMS

_PULL_ERRORS = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
_PERMANENT_PULL_ERRORS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_START_ERRORS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "CreatePodSandboxError", "RunContainerError"}
)
_CREATING = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons in the status of a container that has not started, for any cause."""
_NOT_FOUND = re.compile(r"code = NotFound|manifest unknown|name unknown")
"""Messages of containerd and CRI-O for an image that the registry does not have."""

_RETRIED = frozenset({Reason.BUSY, Reason.OCCUPIED})
"""Results of a node upgrade after which its Job runs it again, without a limit."""

_MAX_LENGTH = 300
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


def prepare_result(pods: Iterable[Pod], upgrade: NodeUpgrade) -> PodResult:
    """Result of the prepare pod of a node upgrade."""
    return _latest_result(_pods_named(pods, prepare_name(upgrade), upgrade.metadata))


def upgrade_result(job: Job | None, pods: Iterable[Pod]) -> PodResult:
    """Result of the upgrade Job, with its pods.

    The condition of the Job decides, because it runs a killed pod again; its last pod has the message.

    Until the Job has ended its pods do not decide: a pod that cannot start now may start later, and would run on the
    node together with a revert. A Job that was created and not started is distinguished from no Job: it has no effect
    yet, and the write that starts it may be in flight.
    """
    if job is None:
        return PodResult()
    own_pods = [pod for pod in pods if _is_controlled_by(pod, job.metadata)]
    ended = _true_conditions(job)
    if "Complete" in ended:
        succeeded = [pod for pod in own_pods if pod.status.phase == "Succeeded"]
        # Its pods may have been deleted; the Job has the condition that they completed.
        return _latest_result(succeeded) if succeeded else PodResult(outcome=PodOutcome.SUCCEEDED)
    if "Failed" in ended:
        last = _latest_result([pod for pod in own_pods if pod.status.phase == "Failed"])
        why = f"{ended['Failed'].reason}: {ended['Failed'].message}".strip(": ")
        return PodResult(outcome=PodOutcome.FAILED, result=last.result, trouble=last.trouble or why)
    if job.spec.suspend and names.ANNOTATION_STARTED not in job.metadata.annotations:
        return PodResult(suspended=True)
    if job.spec.suspend:
        return PodResult(outcome=PodOutcome.WAITING, trouble=f"Job {job.metadata.name} was suspended by another client")
    last = _latest_result([pod for pod in own_pods if pod.status.phase not in {"Succeeded", "Failed"}])
    before = _latest_result([pod for pod in own_pods if pod.status.phase == "Failed"]).result
    if before is not None and before.reason in _RETRIED:  # not ended: the driver or the node is still in use
        return PodResult(outcome=PodOutcome.WAITING, result=before, trouble=last.trouble or before.message)
    silence = last.silence if last.outcome is not PodOutcome.ABSENT else _silence_without_pod(job)
    return PodResult(outcome=PodOutcome.WAITING, trouble=last.trouble, silence=silence)


def has_job_ended(job: Job) -> bool:
    """Whether a Job has ended and creates no more pods."""
    return not {"Complete", "Failed"}.isdisjoint(_true_conditions(job))


def _true_conditions(job: Job) -> dict[str, Condition]:
    return {condition.type: condition for condition in job.status.conditions if condition.status == "True"}


def _silence_without_pod(job: Job) -> Silence | None:
    created, meta = job.status.start_time or job.metadata.creation_timestamp, job.metadata
    return Silence(since=timing.parse_time(created), uid=meta.uid, maker=meta.name) if created else None


def validate_result(pods: Iterable[Pod], upgrade: NodeUpgrade, *, reverting: bool) -> PodResult:
    """Result of the validation pod of the upgrade, or of its revert, which has a pod of its own.

    A pod that the kubelet did not admit counts as none and is created again.
    """
    own_pods = _pods_named(pods, validation_name(upgrade, reverting=reverting), upgrade.metadata)
    rejected = next((pod.status for pod in own_pods if is_not_admitted(pod)), None)
    if rejected is None:
        return _latest_result(own_pods)
    reason = f"{rejected.reason}: {shorten_message(rejected.message)}".strip(": ")
    return PodResult(trouble=f"the kubelet did not admit the validation pod, which is created again: {reason}")


def is_not_admitted(pod: Pod) -> bool:
    """Whether the kubelet rejected a pod before any of its containers ran, because of missing devices or resources.

    After its start a kubelet rejects pods that request devices until the device plugin has registered. That does not
    mean that devices are missing.
    """
    reason = pod.status.reason
    is_rejection = reason == "UnexpectedAdmissionError" or reason.startswith("OutOf")
    return (
        pod.status.phase == "Failed"
        and is_rejection
        and not any(status.state.terminated for status in _container_statuses(pod))
    )


def _pods_named(pods: Iterable[Pod], name: str, owner: ObjectMeta) -> list[Pod]:
    """The pods with a name and this owner: a NodeUpgrade that is created again uses the same names."""
    return [pod for pod in pods if pod.metadata.name == name and _is_controlled_by(pod, owner)]


def _is_controlled_by(pod: Pod, owner: ObjectMeta) -> bool:
    return any(reference.controller and reference.uid == owner.uid for reference in pod.metadata.owner_references)


def _latest_result(pods: Sequence[Pod]) -> PodResult:
    if not pods:
        return PodResult()
    pod = max(pods, key=_creation_order)
    match pod.status.phase:
        case "Succeeded":
            return _success_result(pod)
        case "Failed":
            return PodResult(outcome=PodOutcome.FAILED, result=_failed_order(pod), trouble=_failure_text(pod))
        case _:
            return _waiting_result(pod)


def _creation_order(pod: Pod) -> tuple[datetime, str]:
    created = pod.metadata.creation_timestamp
    return (timing.parse_time(created) if created else _EARLIEST, pod.metadata.name)


def _success_result(pod: Pod) -> PodResult:
    result = _order_result(pod)
    if result is not None and result.reason is Reason.DONE:
        return PodResult(outcome=PodOutcome.SUCCEEDED, result=_with_steps(result, pod))
    if result is not None:
        return PodResult(
            outcome=PodOutcome.FAILED, result=result, trouble="exit code 0 contradicts the termination message"
        )
    messages = " ".join(
        status.state.terminated.message for status in pod.status.container_statuses if status.state.terminated
    )
    return PodResult(
        outcome=PodOutcome.FAILED,
        trouble=f"ended without a valid termination message: {shorten_message(messages) or 'none'}",
    )


def _with_steps(result: OrderResult, pod: Pod) -> OrderResult:
    """The result of a validation pod, with those of its steps before: power limits, programs on all GPUs."""
    statuses = [status for status in pod.status.init_container_statuses if status.name in {POWER_LIMITS, PROGRAMS}]
    results = [result, *(step for step in _order_results(statuses) if step.message)]
    facts = {name: text for step in results for name, text in step.facts.items()}
    return msgspec.structs.replace(result, message="; ".join(step.message for step in results), facts=facts)


def _order_result(pod: Pod) -> OrderResult | None:
    """The termination message of the container with the order."""
    return next(_order_results(pod.status.container_statuses), None)


def _order_results(statuses: Iterable[ContainerStatus]) -> Iterator[OrderResult]:
    for status in statuses:
        ended = status.state.terminated
        if ended is None:
            continue
        result = untrusted.read_json(ended.message, OrderResult)
        if result is not None:  # messages that are not results are reported by the callers
            yield result


def _failed_order(pod: Pod) -> OrderResult | None:
    """The result of a failed order, also in an init container. A result "done" of a killed container is not a
    reason.
    """
    return next(
        (result for result in _order_results(_container_statuses(pod)) if result.reason is not Reason.DONE), None
    )


def _failure_text(pod: Pod) -> str:
    """Why a pod failed without a result: the first failed container, or the reason in the status of the pod."""
    for status in _container_statuses(pod):
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            message = shorten_message(ended.message) or ended.reason or "nothing"
            return f"container {status.name} ended with exit code {ended.exit_code}: {message}"
    return ": ".join(part for part in (pod.status.reason, pod.status.message) if part) or "the pod failed"


def _waiting_result(pod: Pod) -> PodResult:
    """Why a pod does not start.

    An image that is not in the registry is an immediate failure: the controller found it there by the same digest, so
    it was removed and waiting does not help. All other failures of pulls (registry or network down, credentials that
    are being rotated) may be temporary, so the deadline of the phase decides.
    """
    images = {container.name: container.image for container in (*pod.spec.init_containers, *pod.spec.containers)}
    for status in _container_statuses(pod):
        waiting = status.state.waiting
        if waiting is None:
            continue
        image = images.get(status.name, status.name)
        why = shorten_message(waiting.message) or waiting.reason
        if waiting.reason in _PERMANENT_PULL_ERRORS or (
            waiting.reason in _PULL_ERRORS and _NOT_FOUND.search(waiting.message)
        ):
            return PodResult(outcome=PodOutcome.FAILED, trouble=f"image {image} cannot be pulled: {why}")
        if waiting.reason in _PULL_ERRORS:
            return PodResult(outcome=PodOutcome.WAITING, trouble=f"image {image} cannot be pulled yet: {why}")
        if waiting.reason in _START_ERRORS:
            return PodResult(outcome=PodOutcome.WAITING, trouble=f"container {status.name} does not start: {why}")
    return PodResult(outcome=PodOutcome.WAITING, silence=silence_of(pod))


def silence_of(pod: Pod) -> Silence | None:
    """The time since which a pod waits before its first container, without a reason in its status.

    The causes are volumes, network, or a kubelet that has not started the pod; the pull of a first image has the same
    status.
    """
    created = pod.status.start_time or pod.metadata.creation_timestamp
    if not created or pod.status.phase != "Pending" or not all(map(is_being_created, _container_statuses(pod))):
        return None
    return Silence(since=timing.parse_time(created), uid=pod.metadata.uid)


def is_being_created(status: ContainerStatus) -> bool:
    """Whether a container is being created for the first time."""
    waiting = status.state.waiting
    return waiting is not None and waiting.reason in _CREATING and status.last_state.terminated is None


def _container_statuses(pod: Pod) -> Sequence[ContainerStatus]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def shorten_message(text: str) -> str:
    """The end of a text, on one line: the end of logs and errors is the most important part."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_LENGTH else f"…{flat[-_MAX_LENGTH:]}"
