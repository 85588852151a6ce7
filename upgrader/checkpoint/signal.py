"""Checkpoint method `signal`: the request is written into /run/checkpoint, then process 1 gets the declared signal.

The files are those of the downward API, `checkpoint-request` and `park-seconds`, so that a program reads the same files
with both methods. Answers are those of `file`. A withdrawal empties the file; no signal follows, since a program may
take each signal for a request.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import pod_annotations
from upgrader.checkpoint.answers import container_of
from upgrader.checkpoint.file import FileMethod
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import UnaskableError
from upgrader.core.replies import CommandResult

log = structlog.get_logger()

_WRITE = (
    'cd /run/checkpoint && printf %s "$CHECKPOINT_PARK_SECONDS" >.park-seconds.new && '
    "mv .park-seconds.new park-seconds && "
    'printf %s "$CHECKPOINT_REQUEST" >.checkpoint-request.new && mv .checkpoint-request.new checkpoint-request'
)
ASK = ("sh", "-c", f'{_WRITE} && kill -s "$1" 1', "sh")
WITHDRAW = (
    "sh",
    "-c",
    'cd /run/checkpoint && [ "$(cat checkpoint-request)" = "$CHECKPOINT_REQUEST" ] && : >checkpoint-request',
)


class SignalMethod:
    """Implements reconcile.ports.CheckpointMethod."""

    def __init__(self, pods: pod_annotations.Pods) -> None:
        self._pods = pods
        self._files = FileMethod(pods)

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        name = (request.spec.signal or "").removeprefix("SIG")

        async def send(pod: Pod) -> bool:
            ran = await self._run(request, pod, (*ASK, name))
            if ran is not None and ran.code:
                raise UnaskableError(
                    f"{request.spec.signal} could not be sent to pod {pod.metadata.name}",
                    details=f"exit code {ran.code}",
                    resolution="The pod requires a writable /run/checkpoint, sh, and a process 1 that accepts signals.",
                )
            return ran is not None

        await pod_annotations.deliver_request(self._pods, request, pods, send)

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        asked = pod_annotations.informed_members(request, pods)
        await asyncio.gather(*(self._run(request, pod, WITHDRAW) for pod in asked))
        await pod_annotations.remove_annotations(self._pods, request, pods)

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        return await self._files.answers(request, pods)

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        return await self._files.progress(request, pods)

    async def _run(self, request: CheckpointRequest, pod: Pod, command: Sequence[str]) -> CommandResult | None:
        env = {
            "CHECKPOINT_REQUEST": str(request.spec.request_id),
            "CHECKPOINT_PARK_SECONDS": str(request.spec.park_seconds),
        }
        return await self._pods.run(pod, container_of(request, pod), command, env)
