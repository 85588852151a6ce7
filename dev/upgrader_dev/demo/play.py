"""The play: a pool with three training jobs gets another driver, device plugin and kubelet, by a person's commands."""

import asyncio
import time
from datetime import UTC, datetime

import msgspec

from upgrader.api import names
from upgrader.core import timing
from upgrader_dev.demo import evidence, scenes, stage
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.report import Report
from upgrader_dev.demo.scenes import Cast, Jobs
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import Cluster, ClusterSpec

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


async def play_demo(progress: Progress, show: Progress, *, boxes: int = 4, kwok: int = 20) -> Report:
    """The whole demo on a cluster of its own, which is gone afterwards; what was measured.

    `progress` gets what is done, `show` what the commands print.
    """
    started = time.monotonic()
    spec = ClusterSpec(name=CLUSTER, boxes=boxes, kwok=kwok, kubelet=FORMER[1], box_labels=POOL)

    async def put_up(cluster: Cluster) -> Stage:
        return await stage.set_up(cluster, (FORMER[0], NEXT[0]), (FORMER[1], NEXT[1]), progress)

    async with stage.on_stage(spec, put_up, progress) as made:
        report = await _play_upgrade(made, progress, show)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 1))


async def _play_upgrade(made: Stage, progress: Progress, show: Progress) -> Report:
    controller = made.controller()
    await asyncio.to_thread(controller.start)
    try:
        driver, kubelet, plugin = FORMER
        progress(f"installing driver {driver} (simulated), device plugin {plugin} and kubelet {kubelet}")
        body, count = made.stack(driver, kubelet, plugin), len(made.cluster.box_nodes())
        await scenes.install_stack(made, controller, body, count, INSTALL_SECONDS)
        jobs = Jobs(made=made, cast=JOBS, seconds=TRAIN_SECONDS)
        await jobs.start()
        await jobs.train(progress, more=STEPS_BEFORE)
        async with made.admin() as kube:
            before = await evidence.read_versions(kube, made)
        since = timing.format_time(datetime.now(UTC))
        await scenes.upgrade_nodes(made, show, _stack_changes(made))
        await jobs.train(progress, more=STEPS_BEFORE)
        members = {name: cast.members for name, cast in JOBS.items()}
        async with made.admin() as kube:
            return Report(
                jobs=await evidence.read_jobs(kube, made, members),
                nodes=await evidence.read_nodes(kube, made, before, since),
                upgrades=await evidence.read_upgrades(kube),
                seconds=0.0,
            )
    finally:
        await asyncio.to_thread(controller.stop)


def _stack_changes(made: Stage) -> dict[str, str]:
    driver, kubelet, plugin = NEXT
    return {
        "driver.version": driver,
        "devicePlugin.image": made.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": made.images.kubelets[kubelet],
    }
