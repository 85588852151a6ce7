"""Pods that train and can be asked, in two worlds: under a real kubelet, and in the fleet that tests play with."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from tests.support import waiting
from tests.support.manifests import checkpoint_request
from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import JOBS, PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint.methods import checkpoint_methods
from upgrader.kube.client import KubeCluster
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.cluster.fleet import SimulatedFleet
from upgrader_dev.simulated.cluster.pod_programs import PodPrograms

T = TypeVar("T")

TRAINS = """
import signal, sys, time
sys.path.insert(0, "/app")
from workload import CheckpointListener, serve

way, called = sys.argv[1], []
signal.signal(signal.SIGUSR1, lambda *_: called.append(1))
serve(8080)
listener = CheckpointListener(requests="/etc/gpu-upgrader" if way == "file" else "/run/checkpoint")
step = 0
while True:
    step += 1
    listener.progress(step)
    time.sleep(0.1)
    request = listener.requested() if way != "signal" or called else None
    if request is not None:
        listener.acknowledge(request, step, "/data/ckpt")
        listener.park(request)
"""
HOW: dict[str, dict[str, Any]] = {
    "file": {},
    "exec": {"command": ["python3", "/app/workload.py"]},
    "http": {"endpoint": ":8080/checkpoint"},
    "signal": {"signal": "SIGUSR1"},
}


def request_for(pod: Pod, *, missed: bool = False, **how: Any) -> CheckpointRequest:
    """A request with the number 100 for one pod; `missed`: it is recorded as one that did not hear it."""
    meta, container = pod.metadata, pod.spec.containers[0].name
    member = {"pod": meta.name, "uid": meta.uid, "node": pod.spec.node_name, "container": container}
    body = checkpoint_request()
    body["spec"] |= {"requestId": 100, "parkSeconds": 600, "members": [member], **how}
    misses = [{"podUid": meta.uid, "method": "http", "requestId": 100, "at": "2026-11-21T09:00:00Z"}]
    return msgspec.convert({**body, "status": {"missed": misses if missed else []}}, CheckpointRequest)


class PlayedPods:
    """Pods of the fleet: time passes by its ticks."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self._fleet = SimulatedFleet(cluster=self.cluster)
        self._fleet.add_node("gpu-a")
        PodPrograms(self.cluster, self._fleet.mailbox)

    async def start(self, method: str) -> Pod:
        """A pod that trains and is asked this method; given once it has said its first step."""
        self._fleet.add_job(f"asked-by-{method}", gpus=0, method=method)
        pods = await self.eventually(lambda: self.cluster.list(PODS), lambda found: found[-1:] != [], 60)
        name = pods[-1].metadata.name
        pod = await self.eventually(lambda: self._get(name), lambda one: one.status.phase == "Running", 60)
        await self.eventually(
            lambda: checkpoint_methods(self.cluster)["file"].progress(request_for(pod), [pod]), bool, 30
        )
        return pod

    async def eventually(
        self, look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool] = bool, seconds: int = 60
    ) -> T:
        """What `look` gives as soon as `wanted` accepts it."""
        for _ in range(seconds):
            seen = await look()
            if wanted(seen):
                return seen
            self.tick()
        raise AssertionError(f"not seen within {seconds} virtual seconds; the last look gave {await look()!r}")

    def tick(self) -> None:
        """Time for a step."""
        self._fleet.tick()

    async def end(self) -> None:
        """Nothing runs on."""
        for job in await self.cluster.list(JOBS):
            await self.cluster.delete(JOBS, job.metadata)

    async def _get(self, name: str) -> Pod:
        found = await self.cluster.get(PODS, name, "default")
        assert found is not None
        return found


class RealPods:
    """Pods on the node gpu-a, under a real kubelet."""

    def __init__(self, cluster: KubeCluster, image: str) -> None:
        self.cluster, self._image = cluster, image
        self._made: list[Pod] = []

    async def start(self, method: str) -> Pod:
        """As PlayedPods has it."""
        name = f"asked-by-{method}-{uuid.uuid4().hex[:6]}"  # one of an earlier test may still be ending
        made = await self.cluster.create(PODS, manifest(name, method, self._image))
        self._made.append(made)

        async def get() -> Pod:
            found = await self.cluster.get(PODS, made.metadata.name, "default")
            assert found is not None
            return found

        pod = await self.eventually(get, lambda one: one.status.phase == "Running", 60)
        await self.eventually(
            lambda: checkpoint_methods(self.cluster)["file"].progress(request_for(pod), [pod]), bool, 30
        )
        return pod

    async def eventually(
        self, look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool] = bool, seconds: int = 60
    ) -> T:
        """As PlayedPods has it."""
        return await waiting.eventually(look, wanted, seconds)

    def tick(self) -> None:
        """A look at a real pod takes longer than a step of its loop."""

    async def end(self) -> None:
        """Nothing runs on."""
        for pod in self._made:
            await self.cluster.delete(PODS, pod.metadata)


def manifest(name: str, method: str, image: str) -> dict[str, Any]:
    """A pod that runs TRAINS."""
    files = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}
        for path, name in names.REQUEST_FILES.items()
    ]
    container = {
        "name": "trainer",
        "image": image,
        "command": ["python3", "-c", TRAINS, method],
        "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "volumeMounts": [
            {"name": "request", "mountPath": names.REQUEST_DIRECTORY},
            {"name": "answers", "mountPath": names.ANSWER_DIRECTORY},
        ],
    }
    volumes = [{"name": "request", "downwardAPI": {"items": files}}, {"name": "answers", "emptyDir": {}}]
    spec = {"nodeName": "gpu-a", "terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
