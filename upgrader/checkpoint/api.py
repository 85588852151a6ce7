"""Checkpoint method `api`: a responder (operator, sidecar) watches CheckpointRequests and patches `status.acks`."""

from collections.abc import Mapping, Sequence

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import pod_annotations
from upgrader.core.checkpoint_request.acknowledgements import Ack


class ApiMethod:
    """Implements reconcile.ports.CheckpointMethod. Members get the request annotations too."""

    def __init__(self, pods: pod_annotations.Pods) -> None:
        self._pods = pods

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        await pod_annotations.annotate_members(self._pods, request, pods)

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        await pod_annotations.remove_annotations(self._pods, request, pods)

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        del pods
        return request.status.acks

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        """The steps of new pods, which a responder reports after the restart under the same request id."""
        alive = {pod.metadata.uid for pod in pods}
        return {ack.pod_uid: ack.step for ack in request.status.acks if ack.pod_uid in alive}
