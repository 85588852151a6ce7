"""A stack with every operand and nothing to do, on kwok nodes and a real API server: processor time, writes of a look.

The steps are the controller's own, in this process; every write passes its leadership's check, which counts here.

Run: python -m tests.bench.resync [NODES]
"""

import asyncio
import statistics
import sys
import time

from tests.bench import whole_stack
from tests.bench.plan import KERNEL, ready, say
from tests.bench.report import Report
from tests.bench.whole_stack import STACK
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.controller import collector
from upgrader.core.model.operands import Operand
from upgrader.images.publish import push_driver
from upgrader.kube.client import KubeCluster
from upgrader.kube.informer import Informer, node_informer
from upgrader.kube.install import install_kinds
from upgrader.kube.watched import WatchedReads
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context
from upgrader.telemetry import logs
from upgrader.telemetry.logs import LogFormat, LogLevel
from upgrader.wiring import compose
from upgrader.wiring.settings import Settings
from upgrader_dev.demo import manifests, stage, waiting
from upgrader_dev.devcluster import ClusterSpec, DevCluster, KwokSpec, delete_cluster, start_cluster

ROUNDS = 10
MOST_STEPS = 20
"""Until nothing is left to write."""
NODE_COUNT = 2000
MEMBERS = 4


class Counting:
    """A leader who writes down how often it was asked whether it still is one: once before each write."""

    def __init__(self) -> None:
        self.writes = 0

    def check(self) -> None:
        """See ports.Leadership."""

    def count(self) -> None:
        """Called by the connection right before each write."""
        self.writes += 1


def main(report: Report, nodes: int = NODE_COUNT) -> None:
    """Set up, measure, take down."""
    collector.raise_thresholds()  # as a controller does
    logs.configure_logging(LogFormat.TEXT, LogLevel.WARNING)  # not a line for each node that is labelled
    name = f"resync-{nodes}"
    spec = KwokSpec(count=nodes, prefix="fleet", labels=manifests.POOL, kernel=KERNEL, taints=(), gpus=whole_stack.GPUS)
    cluster = start_cluster(ClusterSpec(name=name, boxes=0, kwok=spec, fast=False), say)
    try:
        for file in ("namespace.yaml", "rbac.yaml"):
            stage.apply_file(cluster, stage.DEPLOY / file)
        image = push_driver(cluster.registry, version=whole_stack.VERSION, kernel=KERNEL, progress=say)
        asyncio.run(_measure(report, cluster, image, nodes))
    finally:
        cluster.close()
        delete_cluster(name)


async def _measure(report: Report, cluster: DevCluster, image: str, count: int) -> None:
    leader = Counting()
    settings = Settings(node_image=image, insecure_registries=(cluster.registry,))
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        await install_kinds(kube)
        key = await _image(kube, image)
        guarded = kube.guarded(leader.count)
        nodes = node_informer(guarded)
        watched = WatchedReads(guarded, nodes, settings.namespace)
        keeping = asyncio.gather(nodes.run(), watched.run())
        try:
            async with compose.controller_context(
                settings, guarded, nodes, watched, leader, compose.NoCrashPoints()
            ) as context:
                await waiting.poll_until(lambda: _there(nodes, count), 300, "the nodes are in step")
                looks = _Looks(report, context, leader, count)
                await whole_stack.install(kube, context, image, key, looks.step)
                await looks.measure(f"{count} nodes with every operand, no jobs")
                await _filled(kube, count)
                await looks.measure(f"{count} nodes with every operand, full of gangs of {MEMBERS}")
        finally:
            keeping.cancel()


async def _there(nodes: Informer[Node], count: int) -> bool:
    return len(nodes.snapshot() or {}) >= count


async def _image(kube: KubeCluster, image: str) -> str:
    await kube.apply(DRIVER_IMAGES, manifests.driver_image(whole_stack.VERSION, KERNEL, image))
    (made,) = await kube.list(DRIVER_IMAGES)
    return await ready(kube, made.metadata.name, image)


async def _filled(kube: KubeCluster, count: int) -> None:
    """A gang on every four nodes, each member with all GPUs of its node."""
    gangs = count // MEMBERS
    for number in range(gangs):
        await kube.create(
            JOBS, manifests.trainer_job(f"gang-{number}", image="trainer", members=MEMBERS, gpus=whole_stack.GPUS)
        )

    async def running() -> bool:
        return sum(one.status.ready for one in await kube.list(JOBS)) == gangs * MEMBERS

    await waiting.poll_until(running, 900, f"{gangs * MEMBERS} pods run")


class _Looks:
    """Steps of the stack, one after the other, as the controller makes them."""

    def __init__(self, report: Report, context: Context, leader: Counting, count: int) -> None:
        self._report, self._context, self._leader, self._count = report, context, leader, count
        self._sightings = Sightings()

    async def step(self) -> None:
        """One look at everything."""
        await stack_reconciler.reconcile_stack(self._context, STACK, self._sightings)

    async def measure(self, size: str) -> None:
        """Looks that find nothing to do, and how much of each is reading."""
        await self._settled()
        before, busy, wall = self._leader.writes, [], []
        for _ in range(ROUNDS):
            began, used = time.perf_counter(), time.process_time()
            await self.step()
            busy.append(time.process_time() - used)
            wall.append(time.perf_counter() - began)
        reading = await self._reading()
        median = statistics.median(busy)
        add = self._report.add
        add(f"one look of a stack, processor time, {size}", median, "s", goal="at most 1")
        add(f"  the longest of {ROUNDS}, {size}", max(busy), "s")
        add(f"  all of it over reading alone, {size}", median / reading, "ratio")
        add(f"  as the clock has it, {size}", statistics.median(wall), "s")
        add(f"  writes of {ROUNDS} looks, {size}", self._leader.writes - before, "writes", goal="0")

    async def _settled(self) -> None:
        """What is new is written first: counts and conditions."""
        for _ in range(MOST_STEPS):
            before = self._leader.writes
            await self.step()
            if self._leader.writes == before:
                break
        stack = await self._context.cluster.get(GPU_STACKS, STACK)
        if stack is None or not _whole(stack, self._count):
            raise AssertionError(f"not all {self._count} nodes are as the stack asks: {stack}")

    async def _reading(self) -> float:
        """Processor time of reading what a look reads, and doing nothing with it."""
        times = []
        for _ in range(ROUNDS):
            used = time.process_time()
            await cluster_snapshot.read_around(
                self._context.cluster, self._context.stack.namespace, self._context.workloads
            )
            times.append(time.process_time() - used)
        return statistics.median(times)


def _whole(stack: GpuStack, count: int) -> bool:
    """Every node as it should be, every operand ready on each of them, every label written."""
    status = stack.status
    operands = {one.operand: one.ready for one in status.operands}
    well = {one.type for one in status.conditions if one.status == "True"}
    return (
        (status.nodes, status.ready, status.drifted) == (count, count, 0)
        and operands == dict.fromkeys(Operand, count)
        and {"Valid", "OperandsReady", "NodeFeatures"} <= well
    )


if __name__ == "__main__":
    main(Report(), int(sys.argv[1]) if len(sys.argv) > 1 else NODE_COUNT)
