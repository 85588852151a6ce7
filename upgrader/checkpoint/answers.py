"""What members say, whichever way it comes: the wire forms, and reading them so that doubt is no answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.acknowledgement import Answer

log = structlog.get_logger()

ACK = "/run/checkpoint/ack.json"
PROGRESS = "/run/checkpoint/progress.json"

AT_ONCE = 8
"""Members that are asked, read or patched at the same time."""

T = TypeVar("T")
Step = Annotated[int, msgspec.Meta(ge=0)]


class AckFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An acknowledgement or a refusal as a job writes it, see docs/checkpointing.md."""

    request_id: int
    pod_uid: str
    step: Step
    uri: str = ""
    parked: bool = False
    refused: str = ""
    retry_after_seconds: Annotated[int, msgspec.Meta(ge=1, le=604800)] | None = None


class ProgressFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The latest step as a job writes it."""

    step: Step
    pod_uid: str = ""


class Reader:
    """Decodes what members say; one for each way."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], bytes] = {}
        """Unreadable texts that were logged, so that one that stays is logged once."""

    def answer(self, pod: Pod, text: bytes | None, where: str) -> Answer | None:
        """An acknowledgement or refusal; None where there is none, or it cannot be read."""
        said = self.decode(pod, text, AckFile, where)
        if said is None:
            return None
        uid = pod.metadata.uid
        return Answer(
            # A file may have come with the volume from another pod: its own uid counts, not where it was found.
            pod_uid=uid if said.pod_uid == uid else f"{said.pod_uid} (in the pod {uid})",
            request_id=said.request_id,
            step=said.step,
            uri=said.uri,
            parked=said.parked,
            refused=said.refused,
            retry_after_seconds=said.retry_after_seconds,
        )

    def progress(self, pod: Pod, text: bytes | None, where: str) -> int | None:
        """The latest step of this pod."""
        said = self.decode(pod, text, ProgressFile, where)
        return said.step if said is not None and said.pod_uid in {"", pod.metadata.uid} else None

    def decode(self, pod: Pod, text: bytes | None, type_: type[T], where: str) -> T | None:
        """Doubt holds: what cannot be read is no answer, and its owner finds out why in the log."""
        if not text:
            return None
        try:
            return msgspec.json.decode(text, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            key = (pod.metadata.uid, where)
            if self._told.get(key) != text:
                self._told[key] = text
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                log.warning("unreadable answer", pod=name, path=where, why=str(error))
            return None


def speakers(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Members that run and whose answer counts: all, or the leader."""
    spec = request.spec
    counted = {spec.leader} if spec.leader else {one.uid for one in spec.members}
    return [pod for pod in pods if pod.metadata.uid in counted and pod.status.phase == "Running"]


def container_of(request: CheckpointRequest, pod: Pod) -> str:
    """The container that answers; of a pod that came after the restart, the one of the same name."""
    named = {one.uid: one.container for one in request.spec.members}
    if pod.metadata.uid in named:
        return named[pod.metadata.uid]
    known = set(named.values())
    return next((one.name for one in pod.spec.containers if one.name in known), pod.spec.containers[0].name)


async def by_pod(pods: Sequence[Pod], ask: Callable[[Pod], Awaitable[T | None]]) -> Mapping[str, T]:
    """What `ask` gives for each pod, by uid, as far as it gives something.

    Every pod has its turn whatever becomes of the others; then the first error is raised, as itself.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(pod: Pod) -> tuple[str, T | None]:
        async with gate:
            return pod.metadata.uid, await ask(pod)

    found: dict[str, T] = {}
    for result in await asyncio.gather(*(one(pod) for pod in pods), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        uid, said = result
        if said is not None:
            found[uid] = said
    return found
