"""Request annotations of members, shared by all checkpoint methods."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.request_annotations import annotation_pointer, carries_request, clear_annotations
from upgrader.api.resources import PODS, ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint.answers import AT_ONCE, by_pod, counted_members
from upgrader.core.checkpoint_request.acknowledgements import is_earlier_request
from upgrader.core.errors import ConflictError, NotFoundError, UnaskableError, UpgraderError
from upgrader.core.replies import CommandResult, Reply

T = TypeVar("T")


class Pods(Protocol):
    """The part of the API server's port that checkpoint methods use."""

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T: ...

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None: ...

    async def run(
        self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]
    ) -> CommandResult | None: ...

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None: ...


def unasked_members(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Running members that have neither the request nor a later one."""
    members = {member.uid for member in request.spec.members}
    return [
        pod
        for pod in pods
        if pod.metadata.uid in members
        and is_earlier_request(pod.metadata.annotations.get(names.ANNOTATION_REQUEST, ""), request.spec.request_id)
        and pod.status.phase == "Running"
    ]


def asked_pods(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Pods that have this request, and no later one."""
    request_id = str(request.spec.request_id)
    return [pod for pod in pods if pod.metadata.annotations.get(names.ANNOTATION_REQUEST) == request_id]


async def annotate_members(pods_api: Pods, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
    """Annotate members that do not have the request; each patch tests the value that it replaces.

    Raises:
        ConflictError: a member has got another request; the others are still annotated.
    """
    values = {
        names.ANNOTATION_REQUEST: str(request.spec.request_id),
        names.ANNOTATION_PARK_SECONDS: str(request.spec.park_seconds),
    }

    async def annotate(pod: Pod) -> None:
        try:
            await pods_api.edit(PODS, pod.metadata, set_annotations(pod, values))
        except NotFoundError:
            return  # it was deleted: the verdict will be that the gang has changed

    await _edit_each(unasked_members(request, pods), annotate)


async def deliver_request(
    pods_api: Pods, request: CheckpointRequest, pods: Sequence[Pod], speak: Callable[[Pod], Awaitable[bool]]
) -> None:
    """Deliver the request to members whose answer counts, then annotate those and all members that need no delivery.

    The annotation follows the delivery, so that an uncertain delivery is repeated; and it precedes any error, so that
    members with the request are known and can be released.

    Args:
        pods_api: the API server.
        request: the request.
        pods: the gang's present members.
        speak: delivers the request to one pod; returns whether the delivery is confirmed.

    Raises:
        UnaskableError: members cannot be reached by this method; `missed` names them.
        UpgraderError: the first other error of `speak`.
    """
    todo = {pod.metadata.uid for pod in unasked_members(request, pods)}
    asked_now = counted_members(request, [pod for pod in pods if pod.metadata.uid in todo])
    errors: dict[str, UpgraderError] = {}

    async def speak_to(pod: Pod) -> bool | None:
        try:
            return await speak(pod) or None
        except UpgraderError as error:
            errors[pod.metadata.uid] = error
            return None

    heard = await by_pod(asked_now, speak_to)
    silent = {pod.metadata.uid for pod in asked_now} - heard.keys()
    await annotate_members(pods_api, request, [pod for pod in pods if pod.metadata.uid not in silent])
    for error in errors.values():
        if not isinstance(error, UnaskableError):
            raise error
    first = next(iter(errors.values()), None)
    if first is not None:
        missed = {uid: error.brief for uid, error in errors.items()}
        raise UnaskableError(first.brief, missed=missed, details=first.details, resolution=first.resolution)


def informed_members(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Members that have or may have the request: a member may have parked although its confirmation was lost."""
    may_have = {missed.pod_uid for missed in request.status.missed if missed.request_id == request.spec.request_id}
    heard = [
        *asked_pods(request, pods),
        *(pod for pod in unasked_members(request, pods) if pod.metadata.uid in may_have),
    ]
    return counted_members(request, heard)


async def remove_annotations(pods_api: Pods, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
    """Remove this request's annotations, also of its earlier ids; those of a later request stay."""

    async def clear(pod: Pod) -> None:
        try:
            await pods_api.edit(PODS, pod.metadata, clear_annotations(pod))
        except (ConflictError, NotFoundError):
            return  # replaced by a later request, or deleted: no annotation of this request is left

    await _edit_each([pod for pod in pods if carries_request(request, pod)], clear)


def set_annotations(pod: Pod, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """JSON patch that sets annotations, and fails if the pod was replaced or has got another request.

    A JSON patch cannot test that an annotation is absent, so the resourceVersion is tested instead.
    """
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
    before = pod.metadata.annotations.get(names.ANNOTATION_REQUEST)
    if before is not None:
        operations.append({"op": "test", "path": annotation_pointer(names.ANNOTATION_REQUEST), "value": before})
    else:
        version = pod.metadata.resource_version
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": version})
    if not pod.metadata.annotations:
        return [*operations, {"op": "add", "path": "/metadata/annotations", "value": dict(values)}]
    return [
        *operations,
        *({"op": "add", "path": annotation_pointer(key), "value": value} for key, value in values.items()),
    ]


async def _edit_each(pods: Sequence[Pod], act: Callable[[Pod], Awaitable[None]]) -> None:
    """Call `act` for every pod, also after an error; then raise the first error unchanged."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def edit_pod(pod: Pod) -> None:
        async with gate:
            await act(pod)

    for result in await asyncio.gather(*(edit_pod(pod) for pod in pods), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
