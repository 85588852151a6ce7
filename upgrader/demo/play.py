"""The play: a pool with three training jobs gets another driver, device plugin and kubelet, by a person's commands."""

import asyncio
import time
from datetime import UTC, datetime

import msgspec

from upgrader.api import names
from upgrader.core import timing
from upgrader.demo import evidence, scenes, stage
from upgrader.demo.manifests import POOL
from upgrader.demo.report import Report
from upgrader.demo.scenes import Cast, Jobs
from upgrader.demo.stage import Progress, Stage
from upgrader.devcluster import Cluster, ClusterSpec

CLUSTER = "demo"
FORMER, NEXT = ("1.0.0", "1.34.4", "1"), ("2.0.0", "1.35.4", "2")
"""Driver, kubelet and device plugin before and after."""


JOBS = {
    "gang": Cast(members=2),
    "short": Cast(arguments=("--steps", "900"), annotations={names.ANNOTATION_EXPECTED_RUNTIME: "2m"}),
    "unwilling": Cast(arguments=("--behaviour", "refuse-once", "--retry-after", "10")),
}
"""One of two members, one that ends by itself and is waited for, one that refuses once."""

STEPS_BEFORE = 30
INSTALL_SECONDS, TRAIN_SECONDS = 180.0, 60.0


async def play(progress: Progress, show: Progress, *, boxes: int = 4, kwok: int = 20) -> Report:
    """The whole demo on a cluster of its own, which is gone afterwards; what was measured.

    `progress` gets what is done, `show` what the commands print.
    """
    started = time.monotonic()
    spec = ClusterSpec(name=CLUSTER, boxes=boxes, kwok=kwok, kubelet=FORMER[1], box_labels=POOL)

    async def put_up(cluster: Cluster) -> Stage:
        return await stage.set_up(cluster, (FORMER[0], NEXT[0]), (FORMER[1], NEXT[1]), progress)

    async with stage.on_stage(spec, put_up, progress) as made:
        report = await _upgrade(made, progress, show)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 1))


async def _upgrade(made: Stage, progress: Progress, show: Progress) -> Report:
    controller = made.controller()
    await asyncio.to_thread(controller.start)
    try:
        driver, kubelet, plugin = FORMER
        progress(f"installing driver {driver} (simulated), device plugin {plugin} and kubelet {kubelet}")
        body, count = made.stack(driver, kubelet, plugin), len(made.cluster.box_nodes())
        await scenes.install(made, controller, body, count, INSTALL_SECONDS)
        jobs = Jobs(made=made, cast=JOBS, seconds=TRAIN_SECONDS)
        await jobs.start()
        await jobs.train(progress, more=STEPS_BEFORE)
        async with made.admin() as kube:
            before = await evidence.versions(kube, made)
        since = timing.show(datetime.now(UTC))
        await scenes.upgrade(made, show, _changes(made))
        await jobs.train(progress, more=STEPS_BEFORE)
        members = {name: cast.members for name, cast in JOBS.items()}
        async with made.admin() as kube:
            return Report(
                jobs=await evidence.jobs(kube, made, members),
                nodes=await evidence.nodes(kube, made, before, since),
                upgrades=await evidence.upgrades(kube),
                seconds=0.0,
            )
    finally:
        await asyncio.to_thread(controller.stop)


def _changes(made: Stage) -> dict[str, str]:
    driver, kubelet, plugin = NEXT
    return {
        "driver.version": driver,
        "devicePlugin.image": made.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": made.images.kubelets[kubelet],
    }
