"""One cluster with real kubelets for all rollouts: three nodes in the pool, one outside, twenty kwok nodes beside them.

Each test rolls the pool from the versions that it has to the other ones, by the commands a person types.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, JOBS, NODE_UPGRADES, NODES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import RequestPhase, is_final
from upgrader.kube.client import KubeCluster
from upgrader_dev.demo import stage as stages
from upgrader_dev.demo import waiting
from upgrader_dev.demo.controller import ControllerProcess
from upgrader_dev.demo.journals import JobHistory, read_job
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.scenes import run_command
from upgrader_dev.demo.stage import Stage
from upgrader_dev.devcluster import BoxSpec

VERSIONS = {"1.0.0": ("1.34.4", "1"), "2.0.0": ("1.35.4", "2")}
POOL_NODES = ("gpu-a", "gpu-b", "gpu-c")
OUTSIDE = "gpu-z"
GPUS = 8


@pytest.fixture(scope="session")
def made(start_cluster: Callable[..., Any]) -> Iterator[Stage]:
    """Cluster, images, kinds, rights; the pool is installed by the first test that asks for `pool`."""
    boxes = tuple(BoxSpec(name=name, labels=POOL) for name in POOL_NODES)
    cluster = start_cluster("e2e", boxes=(*boxes, BoxSpec(name=OUTSIDE)), kwok=20)
    made = asyncio.run(stages.set_up(cluster, tuple(VERSIONS), tuple(one[0] for one in VERSIONS.values()), print))
    yield made
    kept = Path("build/e2e-logs")
    kept.mkdir(parents=True, exist_ok=True)
    for log in made.folder.glob("*.log"):
        shutil.copy(log, kept)  # for whoever looks at a failure
    stages.remove_stage(made)


@dataclass
class Pool:
    """The pool and one controller beside it."""

    made: Stage
    kube: KubeCluster
    controller: ControllerProcess
    jobs: list[str] = field(default_factory=list)

    # ---- doing

    async def install(self, driver: str = "1.0.0") -> None:
        """All nodes on this driver, and its kubelet and plugin."""
        await stages.apply_stack(self.kube, self.stack(driver))
        await self.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == len(POOL_NODES), seconds=180)

    def stack(self, driver: str) -> dict[str, Any]:
        kubelet, plugin = VERSIONS[driver]
        return self.made.stack(driver, kubelet, plugin)

    async def train(self, name: str, *, members: int = 2, gpus: int = GPUS, **options: Any) -> None:
        """Start a job, and wait until it trains."""
        self.jobs.append(name)
        await stages.start_job(self.kube, self.made.trainer(name, members=members, gpus=gpus, **options))
        await self.steps(name, 20, members=members)

    async def steps(self, name: str, more: int, *, members: int = 2, seconds: float = 90) -> None:
        """Until every member has done so many more steps, by its own journal."""
        goal = self.story(name).steps_done + more
        await waiting.wait_until(
            lambda: len(self.story(name).members) == members and self.story(name).steps_done >= goal,
            seconds=seconds,
            what=f"{name} trains",
        )

    async def apply(self, driver: str, *flags: str, watch: bool = True, consent: tuple[str, ...] = ()) -> str:
        """`upgrader plan` and `upgrader apply` to the versions of this driver; the plan's name."""
        kubelet, plugin = VERSIONS[driver]
        changes = {
            "driver.version": driver,
            "devicePlugin.image": self.made.images.plugins[plugin],
            "kubelet.version": kubelet,
            "kubelet.artifact": self.made.images.kubelets[kubelet],
        }
        return await self.apply_changes(changes, *flags, watch=watch, consent=consent)

    async def apply_changes(
        self, changes: dict[str, str], *flags: str, watch: bool = True, consent: tuple[str, ...] = ()
    ) -> str:
        """`flags` are for `upgrader plan`, `consent` is for `upgrader apply`."""
        before = {one.metadata.name for one in await self.kube.list(UPGRADE_PLANS)}
        kept = self.made.folder / "forecast.json"
        words = [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]
        await run_command(
            self.made.cluster,
            print,
            "plan",
            *words,
            "--max-unavailable",
            "100%",
            "--no-canary",
            "--wait-for-completion",
            "0s",
            "-o",
            str(kept),
            *flags,
        )
        follow = ("--watch",) if watch else ()
        await run_command(self.made.cluster, print, "apply", str(kept), "--auto-approve", *consent, *follow)
        (name,) = {one.metadata.name for one in await self.kube.list(UPGRADE_PLANS)} - before
        return name

    async def eventually(
        self, kind: Any, name: str, holds: Callable[[Any], bool], *, seconds: float = 120, namespace: str = ""
    ) -> Any:
        what = f"{kind.kind} {name} (controller's log: {self.controller.log})"
        return await waiting.wait_for_object(
            self.kube, kind, name, holds, seconds=seconds, what=what, namespace=namespace
        )

    async def over(self, plan: str, *, seconds: float = 300) -> Any:
        """The plan, once it has ended."""
        return await self.eventually(UPGRADE_PLANS, plan, lambda one: is_final(one.status.phase), seconds=seconds)

    # ---- looking

    def story(self, name: str) -> JobHistory:
        return read_job(self.made.journals(name))

    async def nodes(self) -> dict[str, Any]:
        return {one.metadata.name: one for one in await self.kube.list(NODES) if one.metadata.name in POOL_NODES}

    async def revisions(self) -> set[str]:
        return {one.metadata.labels.get("gpu-upgrader.io/revision", "") for one in (await self.nodes()).values()}

    def nodes_of(self, name: str) -> list[str]:
        """Where the members of a job are, by their own journals, in the order of their ranks."""
        return [one.nodes[-1] for one in self.story(name).members]

    async def kubelets(self) -> set[str]:
        return {one.status.node_info.kubelet_version for one in (await self.nodes()).values()}

    async def requests(self, plan: str) -> list[Any]:
        return [one for one in await self.kube.list(CHECKPOINT_REQUESTS) if one.spec.plan == plan]

    async def upgrades(self, plan: str) -> dict[str, Any]:
        """The plan's latest upgrade to each node."""
        found = [one for one in await self.kube.list(NODE_UPGRADES) if one.spec.plan == plan]
        return {one.spec.node.name: one for one in sorted(found, key=lambda one: one.metadata.creation_timestamp)}

    async def stopped(self, plan: str, *, seconds: float = 240) -> None:
        """Until the plan has stopped a gang. (Idle nodes come first, so a node upgrade alone says nothing of that.)"""

        async def look() -> bool:
            return any(one.status.phase is RequestPhase.STOPPED for one in await self.requests(plan))

        await waiting.poll_until(look, seconds, f"{plan} stops a gang")

    async def asked(self, plan: str, *, seconds: float = 60) -> list[Any]:
        """The plan's requests, once its members have been asked."""
        found: list[Any] = []

        async def look() -> bool:
            found[:] = await self.requests(plan)
            pods = await self.kube.list(PODS, "default")
            key = "gpu-upgrader.io/checkpoint-request"
            return bool(found) and any(key in one.metadata.annotations for one in pods)

        await waiting.poll_until(look, seconds, f"{plan} asks")
        return found

    async def nothing_left(self) -> None:
        """Law 9, as the API server sees it."""
        for job in await self.kube.list(JOBS, "default"):
            assert "gpu-upgrader.io/stopped" not in job.metadata.annotations, job.metadata.name
            assert not job.spec.suspend, job.metadata.name
        for node in (await self.nodes()).values():
            assert "gpu-upgrader.io/claimed-by" not in node.metadata.annotations, node.metadata.name
            assert [one for one in node.spec.taints if one.key.startswith("gpu-upgrader.io/")] == []
        for pod in await self.kube.list(PODS, "default"):
            if pod.status.phase == "Running":
                request = pod.metadata.annotations.get("gpu-upgrader.io/checkpoint-request")
                assert request is None, pod.metadata.name

    async def looked_at_again(self, times: int = 3) -> None:
        """Until the controller has looked at the stack some times more, by its own metrics."""
        for _ in range(times):
            last = self.controller.last_reconcile("GpuStack")
            await waiting.wait_until(
                lambda last=last: self.controller.last_reconcile("GpuStack") > last,
                seconds=60,
                what="the controller looks at the stack",
            )

    async def clear(self) -> None:
        """Jobs away, so that the next test has the pool for itself."""
        for name in self.jobs:
            job = await self.kube.get(JOBS, name, "default")
            if job is not None:
                await self.kube.delete(JOBS, job.metadata)
        await waiting.poll_until(self._no_trainers, 60, "the trainers' pods end")

    async def _no_trainers(self) -> bool:
        for pod in await self.kube.list(PODS, "default"):
            if pod.metadata.deletion_timestamp is None:
                await self.kube.delete(PODS, pod.metadata)
        return not await self.kube.list(PODS, "default")


@asynccontextmanager
async def opened(made: Stage, name: str = "controller", **settings: str) -> AsyncIterator[Pool]:
    """The pool with a running controller; the controller is ended afterwards, the pool stays as it is."""
    controller = made.controller(name)
    controller.start(**settings)
    try:
        async with made.admin() as kube:
            pool = Pool(made=made, kube=kube, controller=controller)
            try:
                yield pool
            finally:
                await pool.clear()
    finally:
        controller.stop()


@pytest.fixture
async def pool(made: Stage) -> AsyncIterator[Pool]:
    """The pool on one of the two versions, its controller running."""
    async with opened(made) as pool:
        await settled(pool)
        yield pool


async def settled(pool: Pool) -> str:
    """Install the pool if it never was, else wait until it is in service; the driver that it has."""
    stack = await pool.kube.get(GPU_STACKS, "pool")
    if stack is None:
        await pool.install()
        return "1.0.0"
    await pool.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == len(POOL_NODES), seconds=120)
    return stack.spec.driver.version


def other(driver: str) -> str:
    """The version that the pool does not have."""
    return next(one for one in VERSIONS if one != driver)


def log_of(controller: ControllerProcess) -> str:
    """The end of a controller's log."""
    return "\n".join(Path(controller.log).read_text(encoding="utf-8").splitlines()[-40:])
