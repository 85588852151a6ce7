"""Way `file`: asked through the downward API, answered in /run/checkpoint, read by exec."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import marks
from upgrader.core.acknowledgement import Answer

log = structlog.get_logger()

ACK = "/run/checkpoint/ack.json"
PROGRESS = "/run/checkpoint/progress.json"

T = TypeVar("T")
Step = Annotated[int, msgspec.Meta(ge=0)]


class AckFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """/run/checkpoint/ack.json, see docs/checkpointing.md."""

    request_id: int
    pod_uid: str
    step: Step
    uri: str = ""
    parked: bool = False
    refused: str = ""


class ProgressFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """/run/checkpoint/progress.json."""

    step: Step
    pod_uid: str = ""


class FileWay:
    """Fits reconcile.ports.Way."""

    def __init__(self, pods: marks.Pods) -> None:
        self._pods = pods
        self._told: dict[tuple[str, str], bytes] = {}
        """Unreadable files that were logged, so that one that stays is logged once."""

    async def ask(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        await marks.ask(self._pods, request, pods)

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        await marks.withdraw(self._pods, request, pods)

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Answer, ...]:
        containers = {one.uid: one.container for one in request.spec.members}
        asked = [pod for pod in pods if pod.metadata.uid in containers and pod.status.phase == "Running"]
        found = await self._read(asked, containers, ACK, AckFile)
        return tuple(
            Answer(
                # A file may have come with the volume from another pod: its own uid counts, not where it was found.
                pod_uid=uid if said.pod_uid == uid else f"{said.pod_uid} (in the pod {uid})",
                request_id=said.request_id,
                step=said.step,
                uri=said.uri,
                parked=said.parked,
                refused=said.refused,
            )
            for uid, said in found.items()
        )

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        named = {one.container for one in request.spec.members}
        containers = {pod.metadata.uid: _container(pod, named) for pod in pods}
        found = await self._read(pods, containers, PROGRESS, ProgressFile)
        return {uid: said.step for uid, said in found.items() if said.pod_uid in {"", uid}}

    async def _read(
        self, pods: Sequence[Pod], containers: Mapping[str, str], path: str, type_: type[T]
    ) -> dict[str, T]:
        gate = asyncio.Semaphore(marks.AT_ONCE)

        async def one(pod: Pod) -> tuple[str, T | None]:
            async with gate:
                text = await self._pods.read_file(pod, containers[pod.metadata.uid], path)
            return pod.metadata.uid, self._decode(text, type_, pod, path)

        results = await asyncio.gather(*(one(pod) for pod in pods))
        return {uid: said for uid, said in results if said is not None}

    def _decode(self, text: bytes | None, type_: type[T], pod: Pod, path: str) -> T | None:
        """Doubt holds: what cannot be read is no answer, and its owner finds out why in the log."""
        if not text:
            return None
        try:
            return msgspec.json.decode(text, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            key = (pod.metadata.uid, path)
            if self._told.get(key) != text:
                self._told[key] = text
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                log.warning("unreadable answer", pod=name, path=path, why=str(error))
            return None


def _container(pod: Pod, named: set[str]) -> str:
    return next((one.name for one in pod.spec.containers if one.name in named), pod.spec.containers[0].name)
