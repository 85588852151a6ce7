"""`upgrader plan` on kwok nodes full of gangs of four, on a real API server: the whole command and its parts, and the
memory of the controller there.

Run: python -m tests.bench.plan [NODES]
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import tenacity

from tests.bench.report import Report
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core.errors import ConflictError
from upgrader.core.model.revisions import plugin_key
from upgrader.images.publish import push_driver
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.process import run
from upgrader_dev.demo import manifests, stage, waiting
from upgrader_dev.demo.controller import ControllerProcess
from upgrader_dev.devcluster import ClusterSpec, DevCluster, KwokSpec, delete_cluster, start_cluster

KERNEL = "6.1.0-49-amd64"
ROUNDS = 5
LOOKS = 3
"""Times that the controller looks at a plan before its memory is read."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet in full use: each gang has `members` nodes of its own."""

    nodes: int
    gangs: int
    members: int = 4
    gpus: int = 8

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.nodes} nodes, {self.gangs} gangs"


SIZES = (Size(nodes=500, gangs=100), Size(nodes=2000, gangs=500))


def main(report: Report, sizes: Sequence[Size] = SIZES) -> None:
    """Set up, measure, take down, one size after the other."""
    for size in sizes:
        _one(report, size)


def _one(report: Report, size: Size) -> None:
    name = f"bench-{size.nodes}"
    spec = KwokSpec(count=size.nodes, prefix="fleet", labels=manifests.POOL, kernel=KERNEL, taints=(), gpus=size.gpus)
    cluster = start_cluster(ClusterSpec(name=name, boxes=0, kwok=spec, fast=False), say)
    try:
        images = {
            one: push_driver(cluster.registry, version=one, kernel=KERNEL, progress=say) for one in ("1.0.0", "2.0.0")
        }
        asyncio.run(_fill(cluster, size, images))
        _measure(report, cluster, size)
        _memory(report, cluster, size, images["1.0.0"])
    finally:
        cluster.close()
        delete_cluster(name)


async def _fill(cluster: DevCluster, size: Size, images: dict[str, str]) -> None:
    """A pool that was installed with 1.0.0, and the gangs on it."""
    plugin = images["1.0.0"]  # any pinned image stands for the plugin: no pod of it is started here
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        await install_kinds(kube)
        for version, image in images.items():
            await kube.apply(DRIVER_IMAGES, manifests.driver_image(version, KERNEL, image))
        keys = [
            await ready(kube, one.metadata.name, images[one.spec.version]) for one in await kube.list(DRIVER_IMAGES)
        ]
        body = manifests.stack_manifest("pool", driver="1.0.0", plugin=plugin, kubelet="1.34.4", artifact=plugin)
        body["spec"].pop("kubelet")
        await kube.apply(GPU_STACKS, body)
        labels = {
            names.LABEL_DRIVER: keys[0],
            names.LABEL_DEVICE_PLUGIN: plugin_key(
                digest=plugin, resource_name=manifests.RESOURCE, more=(("vendor", "sim"),)
            ),
            names.LABEL_OPERANDS: names.ON,
            names.LABEL_REVISION: "0000000000",
        }
        for node in await kube.list(NODES):
            await labelled(kube, node.metadata.name, labels)
        for number in range(size.gangs):
            body = manifests.trainer_job(f"gang-{number}", image="trainer", members=size.members, gpus=size.gpus)
            await kube.create(JOBS, body)

        async def running() -> bool:
            return sum(one.status.phase == "Running" for one in await kube.list(PODS)) >= size.gangs * size.members

        await waiting.poll_until(running, 900, f"{size.gangs * size.members} pods run")


@tenacity.retry(retry=tenacity.retry_if_exception_type(ConflictError), stop=tenacity.stop_after_attempt(20))
async def labelled(kube: KubeCluster, name: str, labels: dict[str, str]) -> None:
    """Kwok's heartbeats may come between reading and writing."""
    node = await kube.get(NODES, name)
    if node is None:
        raise AssertionError(f"{name} was just listed")
    await kube.merge(NODES, node.metadata, {"metadata": {"labels": labels}})


async def ready(kube: KubeCluster, name: str, digest: str) -> str:
    from upgrader.core.model.revisions import image_key  # noqa: PLC0415

    image = await kube.get(DRIVER_IMAGES, name)
    if image is None:
        raise AssertionError(f"{name} was just applied")
    key = image_key(vendor="sim", version=image.spec.version, kernel=KERNEL, digest=digest)
    status = {"phase": "Ready", "digest": digest, "key": key}
    await kube.merge(DRIVER_IMAGES, image.metadata, {"status": status}, "status")
    return key


def _measure(report: Report, cluster: DevCluster, size: Size) -> None:
    argv = [sys.executable, "-m", "upgrader", "--kubeconfig", str(cluster.kubeconfig)]
    env = {"UPGRADER_INSECURE_REGISTRIES": cluster.registry}
    plan = [*argv, "plan", "--set", "driver.version=2.0.0"]
    last = run(plan, timeout=120, env=env)
    say(last.stdout.decode().strip().splitlines()[-1])
    before = _processor_seconds()
    whole = _median(lambda: run(plan, timeout=120, env=env))
    busy = (_processor_seconds() - before) / ROUNDS
    report.add(f"upgrader plan, {size.name}", whole, "s", goal="at most 2 at 2,000 nodes, reads included")
    report.add(f"  of it, processor time of the command itself, {size.name}", busy, "s")
    start = _median(lambda: run([*argv, "--help"], timeout=60, env=env))
    report.add(f"  of it, starting Python with --help, {size.name}", start, "s")
    for what, seconds in asyncio.run(_listing(cluster)).items():
        report.add(f"  of it, listing {what}, {size.name}", seconds, "s")


def _memory(report: Report, cluster: DevCluster, size: Size, image: str) -> None:
    """The controller's memory while it looks at a plan that nobody approved: it reads and forecasts all of the pool."""
    with tempfile.TemporaryDirectory(prefix="upgrader-bench-") as folder:
        for file in ("namespace.yaml", "rbac.yaml", "job-namespace.yaml"):
            stage.apply_file(cluster, stage.DEPLOY / file, NAMESPACE="default")
        controller = ControllerProcess(cluster, Path(folder), image)
        controller.start()
        try:
            asyncio.run(_propose(cluster))
            asyncio.run(_looked(controller))
            report.add(f"controller's memory, {size.name}", _most_mib(controller.pid), "MiB", goal="at most 250")
        finally:
            controller.stop()


async def _propose(cluster: DevCluster) -> None:
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:

        async def known() -> bool:
            stack = await kube.get(GPU_STACKS, "pool")
            return stack is not None and bool(stack.status.update_revision)

        await waiting.poll_until(known, 120, "the controller has seen the stack")
        stack = await kube.get(GPU_STACKS, "pool")
        if stack is None:
            raise AssertionError("it was just there")
        spec = {"stack": "pool", "targetRevision": stack.status.update_revision}
        kinds = {"apiVersion": UPGRADE_PLANS.api_version, "kind": UPGRADE_PLANS.kind}
        await kube.apply(UPGRADE_PLANS, kinds | {"metadata": {"name": "bench"}, "spec": spec})


async def _looked(controller: ControllerProcess) -> None:
    for _ in range(LOOKS):
        last = controller.last_reconcile("UpgradePlan")
        await waiting.wait_until(
            lambda last=last: controller.last_reconcile("UpgradePlan") > last,
            seconds=120,
            what="the controller has looked at the plan",
        )


def _processor_seconds() -> float:
    """Of all programs that were started here and have ended; a busy machine makes nothing of this longer."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _most_mib(pid: int) -> float:
    """The most memory that a process ever had in use (VmHWM, proc(5))."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} shows no VmHWM")


async def _listing(cluster: DevCluster) -> dict[str, float]:
    """Seconds for each of the lists that `plan` makes, all of its sort at once."""
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        found = {}
        for kind in (NODES, PODS, JOBS):
            times = []
            for _ in range(ROUNDS):
                started = time.perf_counter()
                await kube.list(kind)
                times.append(time.perf_counter() - started)
            found[kind.plural] = statistics.median(times)
    return found


def _median(act: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        act()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Report(), [one for one in SIZES if str(one.nodes) in sys.argv[1:]] or SIZES)
