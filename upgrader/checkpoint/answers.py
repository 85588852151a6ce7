"""Answers of members for all checkpoint methods: wire formats, and their strict decoding."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import UnreadableError

log = structlog.get_logger()

ACK = "/run/checkpoint/ack.json"
PROGRESS = "/run/checkpoint/progress.json"

AT_ONCE = 8
"""Members that are requested, read or patched concurrently."""

MOST_TOLD = 1024
"""Unreadable texts that a method remembers; a text that is dropped from memory is logged again."""

LONGEST_REASON = 256
"""Characters of a refusal's reason that are kept."""

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=0, le=untrusted.LARGEST)]
Uid = Annotated[str, msgspec.Meta(max_length=128)]
Location = Annotated[str, msgspec.Meta(max_length=4096)]


class AckFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An acknowledgement or a refusal in the format of a job, see docs/guides/job-authors/checkpointing.md.

    A type of its own beside `Ack`: its values come from a job and are bounded, and its `pod_uid` is not checked yet,
    while the bounds of a stored `Ack` are left to the API server.
    """

    request_id: Number
    pod_uid: Uid
    step: Number
    uri: Location = ""
    parked: bool = False
    refused: str = ""
    retry_after_seconds: Annotated[int, msgspec.Meta(ge=1, le=604800)] | None = None


class ProgressFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The latest step in the format of a job."""

    step: Number
    pod_uid: Uid = ""


class Reader:
    """Decoder of answers; each method has its own."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], bytes] = {}
        """Digests of the latest MOST_TOLD logged unreadable texts, so that an unchanged text is logged once."""

    def answer(self, pod: Pod, text: bytes | None, where: str) -> Ack | None:
        """An acknowledgement or refusal; None if there is none, or it cannot be read."""
        answer = self.decode(pod, text, AckFile, where)
        if answer is None:
            return None
        uid = pod.metadata.uid
        return Ack(
            # The volume may contain a file of another pod: the uid in the file counts, not its location.
            pod_uid=uid if answer.pod_uid == uid else f"{answer.pod_uid} (in the pod {uid})",
            request_id=answer.request_id,
            step=answer.step,
            uri=answer.uri,
            parked=answer.parked,
            refused=answer.refused[:LONGEST_REASON],
            retry_after_seconds=answer.retry_after_seconds,
        )

    def progress(self, pod: Pod, text: bytes | None, where: str) -> int | None:
        """The latest step of this pod."""
        progress = self.decode(pod, text, ProgressFile, where)
        return progress.step if progress is not None and progress.pod_uid in {"", pod.metadata.uid} else None

    def decode(self, pod: Pod, text: bytes | None, type_: type[T], where: str) -> T | None:
        """The decoded text; an unreadable text is no answer, and is logged for its owner."""
        if not text:
            return None
        try:
            decoded = untrusted.decode_json(text, type_)
        except UnreadableError as error:
            self._log_unreadable(pod, text, where, error)
            return None
        self._told.pop((pod.metadata.uid, where), None)
        return decoded

    def _log_unreadable(self, pod: Pod, text: bytes, where: str, error: UnreadableError) -> None:
        key, digest = (pod.metadata.uid, where), hashlib.sha256(text).digest()
        if self._told.pop(key, None) != digest:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.warning("unreadable answer of a member", pod=name, path=where, why=error.brief)
        self._told[key] = digest
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]


def counted_members(request: CheckpointRequest, pods: Sequence[Pod]) -> list[Pod]:
    """Running members whose answer counts: all, or the leader."""
    spec = request.spec
    counted = {spec.leader} if spec.leader else {member.uid for member in spec.members}
    return [pod for pod in pods if pod.metadata.uid in counted and pod.status.phase == "Running"]


def container_of(request: CheckpointRequest, pod: Pod) -> str:
    """The container that answers; of a pod after the restart, the container of the same name."""
    named = {member.uid: member.container for member in request.spec.members}
    if pod.metadata.uid in named:
        return named[pod.metadata.uid]
    known = set(named.values())
    return next(
        (container.name for container in pod.spec.containers if container.name in known), pod.spec.containers[0].name
    )


async def by_pod(pods: Sequence[Pod], ask: Callable[[Pod], Awaitable[T | None]]) -> Mapping[str, T]:
    """The results of `ask` by pod uid, without None.

    `ask` is called for every pod, also after an error; then the first error is raised unchanged.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask_pod(pod: Pod) -> tuple[str, T | None]:
        async with gate:
            return pod.metadata.uid, await ask(pod)

    results: dict[str, T] = {}
    for result in await asyncio.gather(*(ask_pod(pod) for pod in pods), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        uid, value = result
        if value is not None:
            results[uid] = value
    return results
