"""The marks by which members are asked, shared by the methods that use the downward API."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.request_marks import carries, clear_annotations, pointer
from upgrader.api.resources import PODS, ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint.answers import AT_ONCE, by_pod, speakers
from upgrader.core.checkpoint_request.acknowledgements import earlier
from upgrader.core.errors import ConflictError, NotFoundError, UnaskableError, UpgraderError
from upgrader.core.replies import Ran, Reply

T = TypeVar("T")


class Pods(Protocol):
    """What asking needs of the API server."""

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T: ...

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None: ...

    async def run(self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]) -> Ran | None: ...

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None: ...


def unasked(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Members that run and do not have the request yet, nor a later one."""
    members = {one.uid for one in request.spec.members}
    return [
        pod
        for pod in pods
        if pod.metadata.uid in members
        and earlier(pod.metadata.annotations.get(names.ANNOTATION_REQUEST, ""), request.spec.request_id)
        and pod.status.phase == "Running"
    ]


def asked(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Pods that have the request, and no later one."""
    ours = str(request.spec.request_id)
    return [pod for pod in pods if pod.metadata.annotations.get(names.ANNOTATION_REQUEST) == ours]


async def ask(pods_api: Pods, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
    """Put the request on members that do not have it; each patch tests what it replaces.

    Raises:
        ConflictError: a member was asked by somebody else meanwhile; the others are asked all the same.
    """
    values = {
        names.ANNOTATION_REQUEST: str(request.spec.request_id),
        names.ANNOTATION_PARK_SECONDS: str(request.spec.park_seconds),
    }

    async def mark(pod: Pod) -> None:
        try:
            await pods_api.edit(PODS, pod.metadata, set_annotations(pod, values))
        except NotFoundError:
            return  # it went: the judgement will say that the gang has changed

    await _each(unasked(request, pods), mark)


async def ask_by(
    pods_api: Pods, request: CheckpointRequest, pods: Sequence[Pod], speak: Callable[[Pod], Awaitable[bool]]
) -> None:
    """Speak to every unasked member whose answer counts, then mark those that heard it, and the others with them.

    The mark comes after the word, so that one that did not arrive for certain is said again; and before any error, so
    that whoever heard it is known to have to be let go.

    Args:
        pods_api: the API server.
        request: what is asked.
        pods: the gang's members as they are now.
        speak: says it to one pod; whether it is known to have arrived.

    Raises:
        UnaskableError: members cannot be asked by this method; `missed` names them.
        UpgraderError: another error of `speak`, the first.
    """
    todo = {pod.metadata.uid for pod in unasked(request, pods)}
    asked_now = speakers(request, [pod for pod in pods if pod.metadata.uid in todo])
    errors: dict[str, UpgraderError] = {}

    async def one(pod: Pod) -> bool | None:
        try:
            return await speak(pod) or None
        except UpgraderError as error:
            errors[pod.metadata.uid] = error
            return None

    heard = await by_pod(asked_now, one)
    silent = {pod.metadata.uid for pod in asked_now} - heard.keys()
    await ask(pods_api, request, [pod for pod in pods if pod.metadata.uid not in silent])
    for error in errors.values():
        if not isinstance(error, UnaskableError):
            raise error
    first = next(iter(errors.values()), None)
    if first is not None:
        missed = {uid: error.brief for uid, error in errors.items()}
        raise UnaskableError(first.brief, missed=missed, details=first.details, resolution=first.resolution)


def listeners(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Members that heard the request, or may have: one whose word got lost on the way back may have parked as well."""
    may_have = {one.pod_uid for one in request.status.missed if one.request_id == request.spec.request_id}
    heard = [*asked(request, pods), *(pod for pod in unasked(request, pods) if pod.metadata.uid in may_have)]
    return speakers(request, heard)


async def withdraw(pods_api: Pods, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
    """Take this request's marks away, those of its earlier askings too; a later request's stay."""

    async def clear(pod: Pod) -> None:
        try:
            await pods_api.edit(PODS, pod.metadata, clear_annotations(pod))
        except (ConflictError, NotFoundError):
            return  # replaced by a later request, or gone: nothing of ours is left there

    await _each([pod for pod in pods if carries(request, pod)], clear)


def set_annotations(pod: Pod, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """JSON patch that sets annotations, and fails when the pod is another one or was asked meanwhile.

    That an annotation is absent cannot be tested by its path, so there the resourceVersion stands for it.
    """
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
    before = pod.metadata.annotations.get(names.ANNOTATION_REQUEST)
    if before is not None:
        operations.append({"op": "test", "path": pointer(names.ANNOTATION_REQUEST), "value": before})
    else:
        version = pod.metadata.resource_version
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": version})
    if not pod.metadata.annotations:
        return [*operations, {"op": "add", "path": "/metadata/annotations", "value": dict(values)}]
    return [*operations, *({"op": "add", "path": pointer(key), "value": value} for key, value in values.items())]


async def _each(pods: Sequence[Pod], act: Callable[[Pod], Awaitable[None]]) -> None:
    """Every pod has its turn whatever becomes of the others; then the first error is raised, as itself."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(pod: Pod) -> None:
        async with gate:
            await act(pod)

    for result in await asyncio.gather(*(one(pod) for pod in pods), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
