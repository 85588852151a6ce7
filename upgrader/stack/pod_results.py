"""What became of our pods on a node: from what the kubelet says to an outcome with the pod's own words. Pure.

An answer is the exit code together with the termination message. What cannot be understood counts as failed, with what
was said: a node upgrade that went wrong without a word must not be taken for one that went well.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from upgrader.api import names
from upgrader.api.kubernetes import Condition, ContainerStatus, Job, ObjectMeta, Pod
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core import timing, untrusted
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade.upgrade_state import Outcome, PodResult
from upgrader.stack.naming import prepare_name, validation_name

_IMAGE_TROUBLE = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
_NEVER = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_START_TROUBLE = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "CreatePodSandboxError", "RunContainerError"}
)
_BEING_MADE = frozenset({"ContainerCreating", "PodInitializing"})
"""What the kubelet says of a container that has not begun, whatever is the matter."""
_ABSENT = re.compile(r"code = NotFound|manifest unknown|name unknown")
"""How containerd and CRI-O hand on a registry's "there is no such image"."""

_AGAIN = frozenset({Reason.BUSY, Reason.OCCUPIED})
"""Answers of a node upgrade after which its Job runs it again, however often."""

_SHOWN = 300
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def prepare_result(pods: Iterable[Pod], upgrade: NodeUpgrade) -> PodResult:
    """The prepare pod of a node upgrade, among our own pods."""
    return _latest(_named(pods, prepare_name(upgrade), upgrade.metadata))


def upgrade_result(job: Job | None, pods: Iterable[Pod]) -> PodResult:
    """The upgrade Job, with its pods among our own.

    Its own condition decides, because it runs a pod again that died; its last pod has the words.

    While the Job is not over its pods are not judged: one that cannot start now may yet, and a way back that began
    meanwhile would meet it on the node. One that was made and not started is told from none: nothing came of it, and
    its start may be on its way.
    """
    if job is None:
        return PodResult()
    mine = [pod for pod in pods if _made_by(pod, job.metadata)]
    ended = _conditions(job)
    if "Complete" in ended:
        done = [pod for pod in mine if pod.status.phase == "Succeeded"]
        # Its pods may have been cleaned away; that they completed is on the Job.
        return _latest(done) if done else PodResult(outcome=Outcome.SUCCEEDED)
    if "Failed" in ended:
        last = _latest([pod for pod in mine if pod.status.phase == "Failed"])
        why = f"{ended['Failed'].reason}: {ended['Failed'].message}".strip(": ")
        return PodResult(outcome=Outcome.FAILED, result=last.result, trouble=last.trouble or why)
    if job.spec.suspend and names.ANNOTATION_STARTED not in job.metadata.annotations:
        return PodResult(suspended=True)
    if job.spec.suspend:
        return PodResult(outcome=Outcome.WAITING, trouble=f"somebody else has suspended Job {job.metadata.name}")
    last = _latest([pod for pod in mine if pod.status.phase not in {"Succeeded", "Failed"}])
    before = _latest([pod for pod in mine if pod.status.phase == "Failed"]).result
    if before is not None and before.reason in _AGAIN:  # not over: it is looked again who holds driver or node
        return PodResult(outcome=Outcome.WAITING, result=before, trouble=last.trouble or before.message)
    silence = last.silence if last.outcome is not Outcome.ABSENT else _without_pod(job)
    return PodResult(outcome=Outcome.WAITING, trouble=last.trouble, silence=silence)


def job_ended(job: Job) -> bool:
    """Whether a Job makes no pod any more."""
    return not {"Complete", "Failed"}.isdisjoint(_conditions(job))


def _conditions(job: Job) -> dict[str, Condition]:
    return {one.type: one for one in job.status.conditions if one.status == "True"}


def _without_pod(job: Job) -> Silence | None:
    made, meta = job.status.start_time or job.metadata.creation_timestamp, job.metadata
    return Silence(since=timing.parse(made), uid=meta.uid, maker=meta.name) if made else None


def validate_result(pods: Iterable[Pod], upgrade: NodeUpgrade, *, reverting: bool) -> PodResult:
    """The validation pod of this way, among our own pods: the one before the way back does not count on it.

    One that the kubelet did not admit is as good as none, and is made again.
    """
    mine = _named(pods, validation_name(upgrade, reverting=reverting), upgrade.metadata)
    refused = next((pod.status for pod in mine if not_admitted(pod)), None)
    if refused is None:
        return _latest(mine)
    said = f"{refused.reason}: {shortened(refused.message)}".strip(": ")
    return PodResult(trouble=f"the kubelet did not admit the validation pod, so it is made again; it said: {said}")


def not_admitted(pod: Pod) -> bool:
    """Whether the kubelet refused a pod before any container of it ran, for want of devices or room.

    Right after its start a kubelet knows no device plugin, and refuses what asks for devices until one has registered.
    That says nothing about the devices.
    """
    reason = pod.status.reason
    refused = reason == "UnexpectedAdmissionError" or reason.startswith("OutOf")
    return pod.status.phase == "Failed" and refused and not any(one.state.terminated for one in _statuses(pod))


def _named(pods: Iterable[Pod], name: str, owner: ObjectMeta) -> list[Pod]:
    """The pod by its name, where this owner made it: one ordered again has the same name as the one before."""
    return [pod for pod in pods if pod.metadata.name == name and _made_by(pod, owner)]


def _made_by(pod: Pod, owner: ObjectMeta) -> bool:
    return any(one.controller and one.uid == owner.uid for one in pod.metadata.owner_references)


def _latest(pods: Sequence[Pod]) -> PodResult:
    if not pods:
        return PodResult()
    pod = max(pods, key=_age)
    match pod.status.phase:
        case "Succeeded":
            return _succeeded(pod)
        case "Failed":
            return PodResult(outcome=Outcome.FAILED, result=_refusal(pod), trouble=_failure(pod))
        case _:
            return _waiting(pod)


def _age(pod: Pod) -> tuple[datetime, str]:
    created = pod.metadata.creation_timestamp
    return (timing.parse(created) if created else _LONG_AGO, pod.metadata.name)


def _succeeded(pod: Pod) -> PodResult:
    answer = _answer(pod)
    if answer is not None and answer.reason is Reason.DONE:
        return PodResult(outcome=Outcome.SUCCEEDED, result=answer)
    if answer is not None:
        return PodResult(outcome=Outcome.FAILED, result=answer, trouble="exit code 0 contradicts the answer")
    said = " ".join(one.state.terminated.message for one in pod.status.container_statuses if one.state.terminated)
    return PodResult(
        outcome=Outcome.FAILED, trouble=f"ended without an answer; its message: {shortened(said) or 'none'}"
    )


def _answer(pod: Pod) -> OrderResult | None:
    """The termination message of the container that had the order."""
    return next(_answers(pod.status.container_statuses), None)


def _answers(statuses: Iterable[ContainerStatus]) -> Iterator[OrderResult]:
    for status in statuses:
        ended = status.state.terminated
        if ended is None:
            continue
        found = untrusted.document(ended.message, OrderResult)
        if found is not None:  # what is none is shown by `_failure` and `_succeeded`
            yield found


def _refusal(pod: Pod) -> OrderResult | None:
    """Why an order failed, also one before the last. Who was killed after it had said "done" explains nothing."""
    return next((one for one in _answers(_statuses(pod)) if one.reason is not Reason.DONE), None)


def _failure(pod: Pod) -> str:
    """Why a pod failed that gave no answer: the first container that ended badly, or the kubelet's word on the pod."""
    for status in _statuses(pod):
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            said = shortened(ended.message) or ended.reason or "nothing"
            return f"container {status.name} ended with {ended.exit_code}; it said: {said}"
    return ": ".join(part for part in (pod.status.reason, pod.status.message) if part) or "the pod failed"


def _waiting(pod: Pod) -> PodResult:
    """What keeps a pod from starting.

    An image that the registry says is absent fails at once: the controller saw it there by this very digest, so it was
    removed and will not come by waiting. Everything else that pulls meet (a registry away, a network down, credentials
    that are being rotated) may pass, so the phase's deadline decides.
    """
    images = {one.name: one.image for one in (*pod.spec.init_containers, *pod.spec.containers)}
    for status in _statuses(pod):
        waiting = status.state.waiting
        if waiting is None:
            continue
        image = images.get(status.name, status.name)
        why = shortened(waiting.message) or waiting.reason
        if waiting.reason in _NEVER or (waiting.reason in _IMAGE_TROUBLE and _ABSENT.search(waiting.message)):
            return PodResult(outcome=Outcome.FAILED, trouble=f"image {image} cannot be pulled: {why}")
        if waiting.reason in _IMAGE_TROUBLE:
            return PodResult(outcome=Outcome.WAITING, trouble=f"image {image} cannot be pulled yet: {why}")
        if waiting.reason in _START_TROUBLE:
            return PodResult(outcome=Outcome.WAITING, trouble=f"container {status.name} does not start: {why}")
    return PodResult(outcome=Outcome.WAITING, silence=silence_of(pod))


def silence_of(pod: Pod) -> Silence | None:
    """Of a pod that waits for what comes before its first container, of which its status says nothing.

    That is its volumes, its network, or a kubelet that has not taken it up; a first image that is pulled looks alike.
    """
    made = pod.status.start_time or pod.metadata.creation_timestamp
    if not made or pod.status.phase != "Pending" or not all(map(being_made, _statuses(pod))):
        return None
    return Silence(since=timing.parse(made), uid=pod.metadata.uid)


def being_made(status: ContainerStatus) -> bool:
    """Whether a container is only being made, and never was before."""
    waiting = status.state.waiting
    return waiting is not None and waiting.reason in _BEING_MADE and status.last_state.terminated is None


def _statuses(pod: Pod) -> Sequence[ContainerStatus]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def shortened(text: str) -> str:
    """The end of it, on one line: logs and errors say last what matters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"…{flat[-_SHOWN:]}"
