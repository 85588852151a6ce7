"""A pool of kwok nodes for whole rollouts: images, kinds and rights as they ship, a world and a controller."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kwok_world import SPACE, KwokWorld
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import is_final
from upgrader.images.publish import push_driver
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.process import daemon
from upgrader_dev.demo import manifests, stage, waiting
from upgrader_dev.demo.controller import NAMESPACE, ControllerProcess
from upgrader_dev.devcluster import DevCluster

KERNEL = "6.1.0-49-amd64"
STACK = "pool"
KUBELETS = {"1.0.0": "1.34.4", "2.0.0": "1.35.4"}
"""By the driver that comes with it."""


@dataclass
class KwokPool:
    """See `set_up`."""

    cluster: DevCluster
    kube: KubeCluster
    world: KwokWorld
    controller: ControllerProcess
    images: dict[str, str]
    starts: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    """More of the stack's spec."""

    async def install(self, driver: str, seconds: float) -> None:
        """Every node of the pool with this driver, by the controller."""
        count = len(await self.kube.list(NODES))
        await self.declare(driver)
        await self.eventually(GPU_STACKS, STACK, lambda one: one.status.ready == count, seconds)

    async def declare(self, driver: str) -> None:
        """The stack with this driver; any pinned image stands for plugin and kubelet, since kwok runs none of them."""
        image = self.images["1.0.0"]
        body = manifests.stack_manifest(STACK, driver=driver, plugin=image, kubelet=KUBELETS[driver], artifact=image)
        await self.kube.apply(GPU_STACKS, body | {"spec": body["spec"] | {"nodeFeatures": "External"} | self.fields})

    async def plan(self, name: str, driver: str, **strategy: Any) -> None:
        """An approved plan to this driver, without canaries."""
        before = await self.kube.get(GPU_STACKS, STACK)
        await self.declare(driver)
        seen = await self.eventually(
            GPU_STACKS, STACK, lambda one: one.status.observed_generation > before.metadata.generation, 120
        )
        approval = {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": {"maxInterruptions": 100}}
        quick = {"maxUnavailable": "100%", "canary": {"enabled": False}, "waitForCompletionSeconds": 0, **strategy}
        spec = {"stack": STACK, "targetRevision": seen.status.update_revision, "approval": approval, "strategy": quick}
        await self.kube.create(UPGRADE_PLANS, {"metadata": {"name": name}, "spec": spec})

    async def over(self, plan: str, seconds: float) -> Any:
        """The plan, once it has ended."""
        return await self.eventually(UPGRADE_PLANS, plan, lambda one: is_final(one.status.phase), seconds)

    async def eventually(self, kind: Any, name: str, holds: Callable[[Any], bool], seconds: float) -> Any:
        """A controller that has ended meanwhile is started again, as its Deployment does."""

        def held(one: Any) -> bool:
            self.keep_running()
            return holds(one)

        what = f"{kind.kind} {name} (controller's log: {self.controller.log})"
        return await waiting.wait_for_object(self.kube, kind, name, held, seconds=seconds, what=what)

    def keep_running(self) -> None:
        if self.controller.running:
            return
        if self.controller.pid:
            daemon.reap_child(self.controller.pid)
        self.controller.start()
        self.starts += 1

    async def leftovers(self) -> list[str]:
        """What is stopped or marked by the controller, in words."""
        found = [
            f"Job {job.metadata.name} is stopped"
            for job in await self.kube.list(JOBS, SPACE)
            if names.ANNOTATION_STOPPED in job.metadata.annotations or job.spec.suspend
        ]
        found += [
            f"Pod {pod.metadata.name} is asked for a checkpoint"
            for pod in await self.kube.list(PODS, SPACE)
            if names.ANNOTATION_REQUEST in pod.metadata.annotations
        ]
        for node in await self.kube.list(NODES):
            marks = [one.key for one in node.spec.taints if one.key.startswith(names.GROUP)]
            marks += [one for one in (names.ANNOTATION_CLAIMED_BY,) if one in node.metadata.annotations]
            found += [f"node {node.metadata.name} has {mark}" for mark in marks]
        return found


async def set_up(cluster: DevCluster, folder: Path, kube: KubeCluster, server: str = "") -> KwokPool:
    """All but the stack; `server`: where the controller finds the API server, if not at its own address."""
    images = {
        one: await asyncio.to_thread(push_driver, cluster.registry, version=one, kernel=KERNEL, progress=print)
        for one in KUBELETS
    }
    for file in ("namespace.yaml", "rbac.yaml", "job-namespace.yaml"):
        await asyncio.to_thread(stage.apply_file, cluster, stage.DEPLOY / file, NAMESPACE=SPACE)
    await install_kinds(kube)
    for version, image in images.items():
        await kube.apply(DRIVER_IMAGES, manifests.driver_image(version, KERNEL, image))
    controller = ControllerProcess(cluster, folder, images["1.0.0"], server=server)
    return KwokPool(cluster, kube, KwokWorld(kube, NAMESPACE), controller, images)
