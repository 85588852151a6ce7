"""What became of our pods on a node: from what the kubelet says to an outcome with the pod's own words."""

from collections.abc import Iterable, Sequence

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Job, Pod
from upgrader.core.orders import OrderResult, Reason
from upgrader.core.visit_facts import Errand, Outcome

IMAGE_TROUBLE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


def prepare_errand(pods: Iterable[Pod]) -> Errand:
    """The prepare pod among a visit's pods."""
    return _latest(_of(pods, "prepare"))


def visit_errand(job: Job | None, pods: Iterable[Pod]) -> Errand:
    """The visit Job: its own condition decides, its last pod has the words."""
    mine = _of(pods, "visit")
    if job is None:
        return Errand()
    mine = [pod for pod in mine if any(one.uid == job.metadata.uid for one in pod.metadata.owner_references)]
    last = _latest(mine)
    ended = {one.type for one in job.status.conditions if one.status == "True"}
    if "Complete" in ended:
        return Errand(outcome=Outcome.SUCCEEDED, result=last.result)
    if "Failed" in ended:
        why = next((one.message for one in job.status.conditions if one.type == "Failed"), "")
        return Errand(outcome=Outcome.FAILED, result=last.result, trouble=last.trouble or why)
    return Errand(outcome=Outcome.WAITING, trouble=last.trouble)


def validate_errand(pods: Iterable[Pod], *, reverting: bool) -> Errand:
    """The validation pod of this way: the one before the way back does not count on it."""
    way = "revalidate-" if reverting else "validate-"
    return _latest([pod for pod in _of(pods, "validate") if pod.metadata.name.startswith(way)])


def _of(pods: Iterable[Pod], component: str) -> list[Pod]:
    return [pod for pod in pods if pod.metadata.labels.get(names.LABEL_COMPONENT) == component]


def _latest(pods: Sequence[Pod]) -> Errand:
    if not pods:
        return Errand()
    pod = max(pods, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name))
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    match pod.status.phase:
        case "Succeeded":
            return Errand(outcome=Outcome.SUCCEEDED, result=_result(statuses))
        case "Failed":
            return Errand(outcome=Outcome.FAILED, result=_result(statuses), trouble=_why(pod, statuses))
        case _:
            return Errand(outcome=Outcome.WAITING, trouble=_waiting(pod, statuses))


def _result(statuses: Sequence[ContainerStatus]) -> OrderResult | None:
    for status in reversed(statuses):
        ended = status.state.terminated
        if ended is None or not ended.message:
            continue
        try:
            return msgspec.json.decode(ended.message, type=OrderResult)
        except msgspec.MsgspecError:
            if ended.exit_code:
                return OrderResult(reason=Reason.BAD_ORDER, message=f"{status.name}: {ended.message.strip()[:300]}")
    return None


def _why(pod: Pod, statuses: Sequence[ContainerStatus]) -> str:
    for status in statuses:
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            return f"{status.name} ended with {ended.exit_code}: {ended.message.strip()[:300] or ended.reason}"
    return pod.status.message or pod.status.reason


def _waiting(pod: Pod, statuses: Sequence[ContainerStatus]) -> str:
    for status in statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason in IMAGE_TROUBLE:
            images = {one.name: one.image for one in (*pod.spec.init_containers, *pod.spec.containers)}
            return f"image {images.get(status.name, status.name)} cannot be pulled: {waiting.message or waiting.reason}"
    return ""
