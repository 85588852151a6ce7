"""A stack with nothing to do, on kwok nodes and a real API server: processor time and writes of one look at all of it.

The steps are the controller's own, in this process; every write passes its leadership's check, which counts here.

Run: python -m tests.bench.resync [NODES]
"""

import asyncio
import statistics
import sys
import time

from tests.bench.plan import KERNEL, labelled, ready, say
from tests.bench.report import Report
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS, NODES, PODS
from upgrader.core.revisions import plugin_key
from upgrader.demo import manifests, waiting
from upgrader.devcluster import Cluster, ClusterSpec, KwokSpec, down, up
from upgrader.images.publish import push_driver
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.kube.nodecache import NodeCache
from upgrader.reconcile import stacks
from upgrader.reconcile.context import Context
from upgrader.reconcile.sightings import Sightings
from upgrader.wiring import compose
from upgrader.wiring.settings import Settings

STACK = "pool"
ROUNDS = 10
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
    name = f"resync-{nodes}"
    spec = KwokSpec(count=nodes, prefix="fleet", labels=manifests.POOL, kernel=KERNEL, taints=(), gpus=8)
    cluster = up(ClusterSpec(name=name, boxes=0, kwok=spec, fast=False), say)
    try:
        image = push_driver(cluster.registry, version="1.0.0", kernel=KERNEL, progress=say)
        asyncio.run(_measure(report, cluster, image, nodes))
    finally:
        cluster.close()
        down(name)


async def _measure(report: Report, cluster: Cluster, image: str, count: int) -> None:
    leader = Counting()
    settings = Settings(namespace="default", node_image=image, insecure_registries=(cluster.registry,))
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        await install_kinds(kube)
        key = await _image(kube, image)
        guarded = kube.guarded(leader.count)
        nodes = NodeCache(guarded)
        keeping = asyncio.create_task(nodes.run())
        try:
            async with compose.controller(settings, guarded, nodes, leader, compose.NoCrashPoints()) as context:
                await waiting.poll(lambda: _there(nodes, count), 300, "the nodes are in step")
                await _installed(kube, context, key, image)
                await _look(report, context, leader, count, f"{count} nodes, no pods")
                await _filled(kube, count)
                await _look(report, context, leader, count, f"{count} nodes full of gangs of {MEMBERS}")
        finally:
            keeping.cancel()


async def _there(nodes: NodeCache, count: int) -> bool:
    return len(nodes.snapshot() or {}) >= count


async def _image(kube: KubeCluster, image: str) -> str:
    await kube.apply(DRIVER_IMAGES, manifests.driver_image("1.0.0", KERNEL, image))
    (made,) = await kube.list(DRIVER_IMAGES)
    return await ready(kube, made.metadata.name, image)


async def _installed(kube: KubeCluster, context: Context, key: str, image: str) -> None:
    """The stack, and nodes that are as it asks: its revision is known from its own first look."""
    body = manifests.stack(STACK, driver="1.0.0", plugin=image, kubelet="1.34.4", artifact=image)
    body["spec"].pop("kubelet")
    envelope = {"envelope": {"maxInterruptions": 0}}
    body["spec"] |= {"nodeSelector": {"bench": "in"}, "onDrift": "Approve", "driftPlan": envelope}
    await kube.apply(GPU_STACKS, body)
    await stacks.step(context, STACK, Sightings())
    stack = await kube.get(GPU_STACKS, STACK)
    if stack is None or stack.status.update_revision is None:
        raise AssertionError("the first look writes the revision")
    labels = {
        "bench": "in",
        names.LABEL_DRIVER: key,
        names.LABEL_DEVICE_PLUGIN: plugin_key(digest=image, resource_name=manifests.RESOURCE),
        names.LABEL_OPERANDS: names.ON,
        names.LABEL_REVISION: stack.status.update_revision,
    }
    found = await kube.list(NODES)
    for node in found:
        await labelled(kube, node.metadata.name, labels)

    async def seen() -> bool:
        known = (context.nodes.snapshot() or {}).values()
        return sum(one.metadata.labels.get("bench") == "in" for one in known) == len(found)

    await waiting.poll(seen, 300, "the labels are seen")


async def _filled(kube: KubeCluster, count: int) -> None:
    """A gang on every four nodes, each member with all GPUs of its node."""
    gangs = count // MEMBERS
    for number in range(gangs):
        await kube.create(JOBS, manifests.trainer(f"gang-{number}", image="trainer", members=MEMBERS, gpus=8))

    async def running() -> bool:
        return sum(one.status.phase == "Running" for one in await kube.list(PODS)) >= gangs * MEMBERS

    await waiting.poll(running, 900, f"{gangs * MEMBERS} pods run")


async def _look(report: Report, context: Context, leader: Counting, count: int, size: str) -> None:
    sightings = Sightings()
    for _ in range(2):  # the first writes what is new: counts of nodes, conditions
        await stacks.step(context, STACK, sightings)
    stack = await context.cluster.get(GPU_STACKS, STACK)
    if stack is None or (stack.status.nodes, stack.status.ready, stack.status.drifted) != (count, count, 0):
        raise AssertionError(f"not all {count} nodes are as the stack asks: {stack}")
    before, busy, wall = leader.writes, [], []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        await stacks.step(context, STACK, sightings)
        busy.append(time.process_time() - used)
        wall.append(time.perf_counter() - began)
    report.add(f"one look of a stack, processor time, {size}", statistics.median(busy), "s", goal="at most 1")
    report.add(f"  the longest of {ROUNDS}, {size}", max(busy), "s")
    report.add(f"  as the clock has it, {size}", statistics.median(wall), "s")
    report.add(f"  writes of {ROUNDS} looks, {size}", leader.writes - before, "writes", goal="0")


if __name__ == "__main__":
    main(Report(), int(sys.argv[1]) if len(sys.argv) > 1 else NODE_COUNT)
