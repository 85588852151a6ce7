"""Checkpoint method `file`: request by the downward API, answer in /run/checkpoint, read by exec."""

from collections.abc import Mapping, Sequence

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import pod_annotations
from upgrader.checkpoint.answers import ACK, PROGRESS, Reader, by_pod, container_of, counted_members
from upgrader.core.checkpoint_request.acknowledgements import Ack


class FileMethod:
    """Implements reconcile.ports.CheckpointMethod."""

    def __init__(self, pods: pod_annotations.Pods) -> None:
        self._pods = pods
        self._reader = Reader()

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        await pod_annotations.annotate_members(self._pods, request, pods)

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        await pod_annotations.remove_annotations(self._pods, request, pods)

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        async def read(pod: Pod) -> Ack | None:
            return self._reader.answer(pod, await self._read(request, pod, ACK), ACK)

        return tuple((await by_pod(counted_members(request, pods), read)).values())

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        async def read(pod: Pod) -> int | None:
            return self._reader.progress(pod, await self._read(request, pod, PROGRESS), PROGRESS)

        return await by_pod(pods, read)

    async def _read(self, request: CheckpointRequest, pod: Pod, path: str) -> bytes | None:
        return await self._pods.read_file(pod, container_of(request, pod), path)
