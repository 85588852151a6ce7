"""What members say, whichever way it comes: the wire forms, and reading them so that doubt is no answer."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.checkpoint_request.acknowledgements import Answer
from upgrader.core.errors import UnreadableError

log = structlog.get_logger()

ACK = "/run/checkpoint/ack.json"
PROGRESS = "/run/checkpoint/progress.json"

AT_ONCE = 8
"""Members that are asked, read or patched at the same time."""

MOST_TOLD = 1024
"""Unreadable texts that a way remembers; one that is pushed out is logged again."""

LONGEST_REASON = 256
"""Characters of a refusal's reason that are kept."""

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=0, le=untrusted.LARGEST)]
Uid = Annotated[str, msgspec.Meta(max_length=128)]
Location = Annotated[str, msgspec.Meta(max_length=4096)]


class AckFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An acknowledgement or a refusal as a job writes it, see docs/checkpointing.md."""

    request_id: Number
    pod_uid: Uid
    step: Number
    uri: Location = ""
    parked: bool = False
    refused: str = ""
    retry_after_seconds: Annotated[int, msgspec.Meta(ge=1, le=604800)] | None = None


class ProgressFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The latest step as a job writes it."""

    step: Number
    pod_uid: Uid = ""


class Reader:
    """Decodes what members say; one for each way."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], bytes] = {}
        """Digests of unreadable texts that were logged, so that one that stays is logged once; the latest MOST_TOLD."""

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
            refused=said.refused[:LONGEST_REASON],
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
            found = untrusted.decode(text, type_)
        except UnreadableError as error:
            self._tell(pod, text, where, error)
            return None
        self._told.pop((pod.metadata.uid, where), None)
        return found

    def _tell(self, pod: Pod, text: bytes, where: str, error: UnreadableError) -> None:
        key, digest = (pod.metadata.uid, where), hashlib.sha256(text).digest()
        if self._told.pop(key, None) != digest:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.warning("unreadable answer", pod=name, path=where, why=error.brief)
        self._told[key] = digest
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]


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
