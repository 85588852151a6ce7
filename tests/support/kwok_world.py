"""What no kwok node does by itself: orders on nodes end, and gangs train, park, acknowledge and go on.

All of it is read from and written to the real API server, as kubelets, trainers and responders do. The gangs speak by
the way `api`, since nothing can be run in a pod of kwok.
"""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.support.background import Background
from tests.support.standin import meta_of
from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import CHECKPOINT_REQUESTS, JOBS, NODES, PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import ConflictError, NotFoundError
from upgrader.core.model.phases import RequestPhase, is_final
from upgrader.core.node_protocol.orders import ORDER_VARIABLE
from upgrader.kube.client import KubeCluster
from upgrader_dev.demo.manifests import RESOURCE

TICK_SECONDS = 0.3
SPACE = "default"
JOB_LABEL = "batch.kubernetes.io/job-name"
ORDERED = {"prepare", "upgrade", "validate"}
WHOLE_PODS = msgspec.structs.replace(PODS, type=dict)


@dataclass
class Gang:
    """What is kept of a gang over its pods."""

    members: int
    step: int = 0
    saved: int = 0
    lost: int = 0
    stops: int = 0
    ran: frozenset[str] = frozenset()
    """Uids of its members when it trained last."""
    parked: tuple[int, float] = (0, 0.0)
    """The request that it parked for, and until when it does."""

    def live(self, pods: list[Pod]) -> None:
        """A moment of its life with these running members."""
        alive = frozenset(one.metadata.uid for one in pods)
        if self.ran - alive:
            self.lost, self.stops = max(self.lost, self.step - self.saved), self.stops + 1
            self.step, self.ran, self.parked = self.saved, frozenset(), (0, 0.0)
        if len(alive) < self.members:
            return
        self.ran = alive
        asked = {int(one.metadata.annotations.get(names.ANNOTATION_REQUEST, "0")) for one in pods}
        (request,) = asked if len(asked) == 1 else (0,)  # nobody saves before all have agreed on the step
        if request and self.parked[0] != request:
            seconds = max(int(one.metadata.annotations.get(names.ANNOTATION_PARK_SECONDS, "0")) for one in pods)
            self.saved, self.parked = self.step, (request, time.monotonic() + seconds)
        if not self.parks(request):
            self.step += 1

    def parks(self, request: int) -> bool:
        """Whether it waits, for this request."""
        return bool(request) and self.parked[0] == request and time.monotonic() < self.parked[1]

    def acks(self, request: CheckpointRequest) -> list[dict[str, Any]]:
        """What its responder reports of it."""
        number = request.spec.request_id
        if request.status.phase is RequestPhase.RESTARTING:
            return [{"podUid": uid, "requestId": number, "step": self.step} for uid in sorted(self.ran)]
        if self.parked[0] != number:
            return []
        said = {"requestId": number, "step": self.saved, "uri": "s3://checkpoints", "parked": self.parks(number)}
        return [{"podUid": uid, **said} for uid in sorted(self.ran)]


@dataclass
class KwokWorld(Background):
    """Nodes and gangs of a cluster."""

    api: KubeCluster
    namespace: str
    gangs: dict[str, Gang] = field(default_factory=dict)

    async def train(self, name: str, members: int, gpus: int = 8) -> None:
        """Start a gang whose members take whole nodes."""
        self.gangs[name] = Gang(members)
        container = {"name": "train", "image": "trainer", "resources": {"limits": {RESOURCE: str(gpus)}}}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        template = {"metadata": {"annotations": {names.ANNOTATION_METHOD: "api"}}, "spec": spec}
        sizes = {"parallelism": members, "completions": members, "completionMode": "Indexed", "backoffLimit": 1000}
        meta = {"name": name, "namespace": SPACE}
        await self.api.create(JOBS, {"metadata": meta, "spec": {**sizes, "template": template}})

    async def _run(self) -> None:
        while True:
            for part in (self._orders, self._trainers):
                with contextlib.suppress(ConflictError, NotFoundError):  # it looks again, as everybody does
                    await part()
            await asyncio.sleep(TICK_SECONDS)

    async def _orders(self) -> None:
        operand_labels = f"{names.LABEL_COMPONENT} in ({','.join(sorted(ORDERED))})"
        for pod in await self.api.list(WHOLE_PODS, self.namespace, labels=operand_labels):
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                await self._carry_out(pod)

    async def _carry_out(self, pod: dict[str, Any]) -> None:
        containers = pod["spec"]["containers"]
        variables = {one["name"]: one.get("value", "") for container in containers for one in container.get("env", [])}
        order = json.loads(variables.get(ORDER_VARIABLE) or "{}")
        if pod["metadata"]["labels"][names.LABEL_COMPONENT] == "upgrade" and order.get("kubelet"):
            node = await self.api.get(NODES, pod["spec"]["nodeName"])
            assert node is not None
            version = f"v{order['kubelet']['version']}"
            change = {"op": "replace", "path": "/status/nodeInfo/kubeletVersion", "value": version}
            await self.api.edit(NODES, node.metadata, [change], "status")
        ended = {"terminated": {"exitCode": 0, "message": json.dumps({"reason": "Done", "message": "done"})}}
        said = {"image": "kwok", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        changes = {"phase": "Succeeded", "containerStatuses": [{"name": one["name"], **said} for one in containers]}
        edits = [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in changes.items()]
        await self.api.edit(WHOLE_PODS, meta_of(pod), edits, "status")

    async def _trainers(self) -> None:
        pods = await self.api.list(PODS, SPACE, labels=JOB_LABEL)
        for name, gang in self.gangs.items():
            mine = [one for one in pods if one.metadata.labels[JOB_LABEL] == name and _runs(one)]
            gang.live(mine)
        for request in await self.api.list(CHECKPOINT_REQUESTS, SPACE):
            gang = self.gangs[request.spec.owner.name]
            acks = gang.acks(request) if not is_final(request.status.phase) else []
            if acks and msgspec.convert(acks, tuple[Ack, ...]) != request.status.acks:
                with contextlib.suppress(ConflictError):
                    await self.api.merge(CHECKPOINT_REQUESTS, request.metadata, {"status": {"acks": acks}}, "status")


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
