"""`upgrader plan` on 500 kwok nodes with 100 gangs of four, on a real API server: the whole command and its parts."""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable

import tenacity

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS, NODES, PODS
from upgrader.core.errors import ConflictError
from upgrader.core.revisions import plugin_key
from upgrader.demo import manifests, waiting
from upgrader.devcluster import Cluster, ClusterSpec, KwokSpec, down, up
from upgrader.images.publish import push_driver
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.process import run

NODES_IN_ALL, GANGS, MEMBERS, GPUS = 500, 100, 4, 8
KERNEL = "6.1.0-49-amd64"
ROUNDS = 5
NAME = "bench"


def main() -> None:
    """Set up, measure, take down."""
    spec = KwokSpec(count=NODES_IN_ALL, prefix="fleet", labels=manifests.POOL, kernel=KERNEL, taints=(), gpus=GPUS)
    cluster = up(ClusterSpec(name=NAME, boxes=0, kwok=spec, fast=False), _say)
    try:
        images = {
            one: push_driver(cluster.registry, version=one, kernel=KERNEL, progress=_say) for one in ("1.0.0", "2.0.0")
        }
        asyncio.run(_fill(cluster, images))
        _measure(cluster)
    finally:
        cluster.close()
        down(NAME)


async def _fill(cluster: Cluster, images: dict[str, str]) -> None:
    """A pool that was installed with 1.0.0, and the gangs on it."""
    plugin = images["1.0.0"]  # any pinned image stands for the plugin: no pod of it is started here
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        await install_kinds(kube)
        for version, image in images.items():
            await kube.apply(DRIVER_IMAGES, manifests.driver_image(version, KERNEL, image))
        keys = [
            await _ready(kube, one.metadata.name, images[one.spec.version]) for one in await kube.list(DRIVER_IMAGES)
        ]
        body = manifests.stack("pool", driver="1.0.0", plugin=plugin, kubelet="1.34.4", artifact=plugin)
        body["spec"].pop("kubelet")
        await kube.apply(GPU_STACKS, body)
        labels = {
            names.LABEL_DRIVER: keys[0],
            names.LABEL_DEVICE_PLUGIN: plugin_key(digest=plugin, resource_name=manifests.RESOURCE),
            names.LABEL_OPERANDS: names.ON,
            names.LABEL_REVISION: "0000000000",
        }
        for node in await kube.list(NODES):
            await _label(kube, node.metadata.name, labels)
        for number in range(GANGS):
            await kube.create(JOBS, manifests.trainer(f"gang-{number}", image="trainer", members=MEMBERS, gpus=GPUS))

        async def running() -> bool:
            return sum(one.status.phase == "Running" for one in await kube.list(PODS)) >= GANGS * MEMBERS

        await waiting.poll(running, 300, f"{GANGS * MEMBERS} pods run")


@tenacity.retry(retry=tenacity.retry_if_exception_type(ConflictError), stop=tenacity.stop_after_attempt(20))
async def _label(kube: KubeCluster, name: str, labels: dict[str, str]) -> None:
    """Kwok's heartbeats may come between reading and writing."""
    node = await kube.get(NODES, name)
    if node is None:
        raise AssertionError(f"{name} was just listed")
    await kube.merge(NODES, node.metadata, {"metadata": {"labels": labels}})


async def _ready(kube: KubeCluster, name: str, digest: str) -> str:
    from upgrader.core.revisions import image_key  # noqa: PLC0415

    image = await kube.get(DRIVER_IMAGES, name)
    if image is None:
        raise AssertionError(f"{name} was just applied")
    key = image_key(vendor="sim", version=image.spec.version, kernel=KERNEL, digest=digest)
    status = {"phase": "Ready", "digest": digest, "key": key}
    await kube.merge(DRIVER_IMAGES, image.metadata, {"status": status}, "status")
    return key


def _measure(cluster: Cluster) -> None:
    argv = [sys.executable, "-m", "upgrader", "--kubeconfig", str(cluster.kubeconfig)]
    env = {"UPGRADER_INSECURE_REGISTRIES": cluster.registry}
    last = run([*argv, "plan", "--set", "driver.version=2.0.0"], timeout=120, env=env)
    whole = _median(lambda: run([*argv, "plan", "--set", "driver.version=2.0.0"], timeout=120, env=env))
    start = _median(lambda: run([*argv, "--help"], timeout=60, env=env))
    pods = asyncio.run(_listing(cluster))
    _say(last.stdout.decode().strip().splitlines()[-1])
    _say(f"upgrader plan, {NODES_IN_ALL} nodes, {GANGS} gangs: {whole * 1000:.0f} ms in the median of {ROUNDS}")
    _say(f"  starting Python with --help: {start * 1000:.0f} ms ({start / whole:.0%} of it)")
    _say(
        f"  listing {NODES_IN_ALL} nodes, {GANGS * MEMBERS} pods once: {pods * 1000:.0f} ms ({pods / whole:.0%} of it)"
    )


async def _listing(cluster: Cluster) -> float:
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            await kube.list(NODES)
            await kube.list(PODS)
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def _median(act: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        act()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
