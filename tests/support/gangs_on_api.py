"""A gang on a real API server, led through the product's own request; the test plays its group and its job."""

from typing import Any

from tests.support.standin import GPU, Object, meta_of
from tests.support.waiting import eventually
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS, ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint.api import ApiMethod
from upgrader.core.checkpoint_request.request_state import GroupOfGang
from upgrader.core.errors import ConflictError, NotFoundError
from upgrader.core.model.fleet import Gang, Owner
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.placement import Placement
from upgrader.kube.client import KubeCluster
from upgrader.reconcile.checkpoint_request import request_reconciler
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader.reconcile.facts.pod_facts import member_facts
from upgrader.reconcile.observe.listed_nodes import ListedNodes
from upgrader.reconcile.render import custom_objects
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.settings import StackSettings
from upgrader.wiring.compose import SystemClock
from upgrader_dev.simulated.cluster.ports import FakeCrashPoints, FakeLeadership, FakeRegistry

SECONDS = 60.0
STEP = 100
KWOK = [{"key": "kwok", "operator": "Exists"}]
PLACEMENT = Placement(left_behind=("old",), group="c-1")


def context_of(api: KubeCluster) -> Context:
    """One controller of the product; its clock is the real one, and its nodes are in step: nothing asks which."""
    return Context(
        cluster=api,
        nodes=ListedNodes(nodes={}),
        registry=FakeRegistry(),
        clock=SystemClock(),
        leadership=FakeLeadership(),
        crash=FakeCrashPoints(),
        methods={"api": ApiMethod(api)},
        stack=StackSettings(node_image="registry/upgrader@sha256:" + "0" * 64),
    )


def pods_spec(restart: str = "Never") -> Object:
    """Eight GPUs, on a node without containers."""
    container = {"name": "train", "image": "trainer", "resources": {"limits": {GPU: "8"}}}
    return {
        "containers": [container],
        "tolerations": KWOK,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 0,
    }


class LiveGang:
    """An owner that was made, its pods, and the request about it."""

    def __init__(self, api: KubeCluster, resource: ResourceKind[Object], body: Object, labels: str, size: int) -> None:
        self.context, self.api = context_of(api), api
        self.resource, self.labels, self.size = resource, labels, size
        self.name, self.namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        self.request: CheckpointRequest | None = None
        self.seen: set[str] = set()
        """Uids of all pods that ran."""

    async def owner(self) -> Object:
        found = await self.api.get(self.resource, self.name, self.namespace)
        assert found is not None
        return found

    async def pods(self) -> list[Pod]:
        return list(await self.api.list(PODS, self.namespace, labels=self.labels))

    async def running(self) -> list[Pod]:
        """All its members, once they run."""

        async def look() -> list[Pod]:
            return [one for one in await self.pods() if one.status.phase == "Running" and _stays(one)]

        found = await eventually(look, lambda pods: len(pods) == self.size, SECONDS)
        self.seen |= {one.metadata.uid for one in found}
        return found

    async def asked(self, *, park: int = 3600) -> None:
        """The request as a plan begins it."""
        owner, pods = await self.owner(), await self.running()
        gang = Gang(
            name=f"{self.namespace}/{self.resource.kind}/{self.name}",
            namespace=self.namespace,
            members=tuple(member_facts(one, PoolGpus(resource=GPU)) for one in pods),
            owner=Owner(
                kind=self.resource.kind,
                name=self.name,
                uid=owner["metadata"]["uid"],
                api_version=self.resource.api_version,
            ),
            method="api",
        )
        now = self.context.clock.now()
        body = custom_objects.checkpoint_request(
            custom_objects.Ask(
                name=f"up-{self.name}",
                gang=gang,
                plan="up",
                batch=1,
                group="c-1",
                request_id=int(now.timestamp()),
                asked_at=now,
                park_seconds=park,
                timeout_seconds=600,
            )
        )
        del body["metadata"]["finalizers"]  # nothing removes it here
        self.request = await self.api.create(CHECKPOINT_REQUESTS, body)

    async def step(self, *nodes: NodePhase, answering: int | None = STEP) -> RequestPhase:
        """One step of the request, with the nodes of its group in these phases."""
        assert self.request is not None
        meta = self.request.metadata
        found = await self.api.get(CHECKPOINT_REQUESTS, meta.name, meta.namespace)
        assert found is not None
        self.request = found
        if answering is not None and not is_final(found.status.phase):
            await self._answer(answering)
        try:
            live = await read_request(self.context, self.request, GPU)
            group = GroupOfGang(nodes=nodes)
            await request_reconciler.advance_request(self.context, live, group, where=lambda: PLACEMENT, ask_until=None)
        except (ConflictError, NotFoundError):
            pass  # as the product: it looks again
        found = await self.api.get(CHECKPOINT_REQUESTS, meta.name, meta.namespace)
        assert found is not None
        self.request = found
        return found.status.phase

    async def until(self, phase: RequestPhase, *nodes: NodePhase, answering: int | None = STEP) -> None:
        """Steps until the request is in a phase."""
        await eventually(lambda: self.step(*nodes, answering=answering), lambda now: now is phase, SECONDS)

    async def parked(self) -> None:
        """Asked and acknowledged."""
        await self.asked()
        await self.until(RequestPhase.PARKED, NodePhase.PREPARED)

    async def stopped(self) -> None:
        """All its pods are gone, and its owner is off with our record."""
        await self.parked()
        await self.until(RequestPhase.STOPPED, NodePhase.DRAINING)

    async def restored(self) -> list[Pod]:
        """Restarted, and seen past the step that it acknowledged."""
        await self.until(RequestPhase.RESTARTING, NodePhase.RELEASING, answering=None)
        await self.until_running()
        await self.until(RequestPhase.RESTORED, NodePhase.RELEASING, answering=STEP + 1)
        return await self.running()

    async def until_running(self) -> None:
        async def look() -> int:
            await self.step(NodePhase.RELEASING, answering=None)
            return len([one for one in await self.pods() if one.status.phase == "Running" and _stays(one)])

        await eventually(look, lambda count: count == self.size, SECONDS)

    async def _answer(self, step: int) -> None:
        """As a responder does: an acknowledgement of every member that runs."""
        assert self.request is not None
        alive = [one.metadata.uid for one in await self.pods() if one.status.phase == "Running" and _stays(one)]
        acks: list[Any] = [
            {
                "podUid": uid,
                "requestId": self.request.spec.request_id,
                "step": step,
                "uri": "s3://checkpoints/100",
                "parked": True,
            }
            for uid in alive
        ]
        if acks and [one.pod_uid for one in self.request.status.acks] != alive:
            patch = {"status": {"acks": acks}}
            self.request = await self.api.merge(CHECKPOINT_REQUESTS, self.request.metadata, patch, "status")

    def stopped_mark(self, owner: Object) -> str | None:
        """Our record on it."""
        return meta_of(owner).annotations.get("gpu-upgrader.io/stopped")


def _stays(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None
