"""Checkpoint method `exec`: the job's own command runs in the container, and its output is the answer.

The command gets the variables CHECKPOINT_REQUEST (a number), CHECKPOINT_PARK_SECONDS, CHECKPOINT_POD_UID (the addressed
pod) and CHECKPOINT_ACTION, which is one of:

- `request`: write a checkpoint for this request and park; the command ends within seconds, and the work continues
  without it. A repeated call under the same number has no effect. Its output is ignored.
- `answer`: print the content of /run/checkpoint/ack.json; if it prints nothing, that file is read.
- `progress`: print the content of /run/checkpoint/progress.json; if it prints nothing, that file is read.
- `withdraw`: resume training.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import pod_annotations
from upgrader.checkpoint.answers import ACK, PROGRESS, Reader, by_pod, container_of, counted_members
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import UnaskableError
from upgrader.core.replies import CommandResult

log = structlog.get_logger()

NOT_RUN = {126: "cannot be run", 127: "does not exist"}
"""Exit codes of a shell that could not run the command."""


class ExecMethod:
    """Implements reconcile.ports.CheckpointMethod."""

    def __init__(self, pods: pod_annotations.Pods) -> None:
        self._pods = pods
        self._reader = Reader()

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        async def begin(pod: Pod) -> bool:
            ran = await self._run(request, pod, "request")
            if ran is not None and ran.code in NOT_RUN:
                command = request.spec.command[0]
                raise UnaskableError(f"{command} {NOT_RUN[ran.code]} in pod {pod.metadata.name}")
            if ran is None or ran.code:
                how = "did not end in time" if ran is None else f"ended with exit code {ran.code}"
                log.warning("checkpoint command failed", pod=pod.metadata.name, how=how)
                return False
            return True

        await pod_annotations.deliver_request(self._pods, request, pods, begin)

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        asked = pod_annotations.informed_members(request, pods)
        # A member that is not reached resumes training when its park-seconds are over.
        await asyncio.gather(*(self._run(request, pod, "withdraw") for pod in asked))
        await pod_annotations.remove_annotations(self._pods, request, pods)

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        async def read(pod: Pod) -> Ack | None:
            return self._reader.answer(pod, await self._read_output(request, pod, "answer", ACK), "answer")

        return tuple((await by_pod(counted_members(request, pods), read)).values())

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        async def read(pod: Pod) -> int | None:
            return self._reader.progress(pod, await self._read_output(request, pod, "progress", PROGRESS), "progress")

        return await by_pod(pods, read)

    async def _read_output(self, request: CheckpointRequest, pod: Pod, action: str, path: str) -> bytes | None:
        ran = await self._run(request, pod, action)
        if ran is None or ran.code:
            return None
        return ran.output.strip() or await self._pods.read_file(pod, container_of(request, pod), path)

    async def _run(self, request: CheckpointRequest, pod: Pod, action: str) -> CommandResult | None:
        env = {
            "CHECKPOINT_ACTION": action,
            "CHECKPOINT_REQUEST": str(request.spec.request_id),
            "CHECKPOINT_PARK_SECONDS": str(request.spec.park_seconds),
            "CHECKPOINT_POD_UID": pod.metadata.uid,
        }
        return await self._pods.run(pod, container_of(request, pod), request.spec.command, env)
