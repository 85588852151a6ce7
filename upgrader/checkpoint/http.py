"""Checkpoint method `http`: the declared endpoint of each pod is called through the API server's proxy.

- `POST`, `{"requestId": n, "podUid": "…", "parkSeconds": s}`: write a checkpoint and park. 202: accepted. 200 with the
  acknowledgement: done. 409, with Retry-After and optionally `{"refused": "why"}`: not now. A repeated call under the
  same number has no effect.
- `GET`: 200 with the acknowledgement; 202, 204 or 404: not yet; 409 as above.
- `GET …/progress`: 200 with the latest step.
- `DELETE …?requestId=n`: resume training.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import pod_annotations
from upgrader.checkpoint.answers import LONGEST_REASON, Reader, by_pod, counted_members
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import NotFoundError, UnaskableError
from upgrader.core.replies import Reply

log = structlog.get_logger()

OK, ACCEPTED, NO_CONTENT, CONFLICT = 200, 202, 204, 409
NOT_THERE = frozenset({404, 405, 501})
LONGEST_RETRY_AFTER = 604800


class RefusalBody(msgspec.Struct, frozen=True, kw_only=True):
    """The optional body of a 409."""

    refused: str = ""


class HttpMethod:
    """Implements reconcile.ports.CheckpointMethod."""

    def __init__(self, pods: pod_annotations.Pods) -> None:
        self._pods = pods
        self._reader = Reader()
        self._refused: dict[tuple[str, int], Ack] = {}
        """Answers 409 to a POST. After a restart the controller posts again, since such a member has no annotation."""

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        async def post(pod: Pod) -> bool:
            spec = request.spec
            body = {"requestId": spec.request_id, "podUid": pod.metadata.uid, "parkSeconds": spec.park_seconds}
            try:
                reply = await self._pods.call(pod, "POST", spec.endpoint or "", body)
            except NotFoundError:
                return False  # it was deleted: the verdict will be that the gang has changed
            if reply is None or reply.status in NOT_THERE:
                how = "no program listens" if reply is None else f"{reply.status} is the response"
                raise UnaskableError(f"{how} at {spec.endpoint} of pod {pod.metadata.name}")
            if reply.status == CONFLICT:
                self._refused[pod.metadata.uid, spec.request_id] = self._refusal(request, pod, reply)
                return False
            if reply.status not in {OK, ACCEPTED, NO_CONTENT}:
                log.warning("unexpected status of a checkpoint endpoint", pod=pod.metadata.name, status=reply.status)
                return False
            return True

        await pod_annotations.deliver_request(self._pods, request, pods, post)

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        spec = request.spec
        asked = pod_annotations.informed_members(request, pods)
        where = f"{spec.endpoint}?requestId={spec.request_id}"
        await asyncio.gather(*(self._call(pod, "DELETE", where) for pod in asked))
        await pod_annotations.remove_annotations(self._pods, request, pods)
        for member in spec.members:
            self._refused.pop((member.uid, spec.request_id), None)

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        async def get(pod: Pod) -> Ack | None:
            refused = self._refused.get((pod.metadata.uid, request.spec.request_id))
            if refused is not None:
                return refused
            reply = await self._call(pod, "GET", request.spec.endpoint or "")
            if reply is None or reply.status not in {OK, CONFLICT}:
                return None
            if reply.status == CONFLICT:
                return self._refusal(request, pod, reply)
            return self._reader.answer(pod, reply.body, "answer")

        return tuple((await by_pod(counted_members(request, pods), get)).values())

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        async def get(pod: Pod) -> int | None:
            reply = await self._call(pod, "GET", f"{(request.spec.endpoint or '').rstrip('/')}/progress")
            return None if reply is None or reply.status != OK else self._reader.progress(pod, reply.body, "progress")

        return await by_pod(pods, get)

    async def _call(self, pod: Pod, method: str, where: str) -> Reply | None:
        try:
            return await self._pods.call(pod, method, where)
        except NotFoundError:
            return None
        except UnaskableError as error:  # no request was delivered there, and the request must end
            log.warning("checkpoint endpoint not called", pod=pod.metadata.name, because=error.brief)
            return None

    def _refusal(self, request: CheckpointRequest, pod: Pod, reply: Reply) -> Ack:
        refusal = self._reader.decode(pod, reply.body, RefusalBody, "refusal")
        after = reply.retry_after_seconds
        return Ack(
            pod_uid=pod.metadata.uid,
            request_id=request.spec.request_id,
            step=0,
            refused=refusal.refused[:LONGEST_REASON] if refusal is not None and refusal.refused else "not now",
            retry_after_seconds=min(after, LONGEST_RETRY_AFTER) if after else None,
        )
