"""Checkpoint method `none`: no request and no answer; for gangs that the approval names expendable."""

from collections.abc import Mapping, Sequence

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.acknowledgements import Ack


class NoMethod:
    """Implements reconcile.ports.CheckpointMethod."""

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        del request, pods

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        del request, pods

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        del request, pods
        return ()

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        del request, pods
        return {}
