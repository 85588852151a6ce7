"""The demo on boxes: a pool with three training jobs is upgraded to another driver, device plugin and kubelet."""

import asyncio
import time
from datetime import UTC, datetime

import msgspec

from upgrader.api import names
from upgrader.core import timing
from upgrader_dev.demo import evidence, scenes, stage
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.report import Report
from upgrader_dev.demo.scenes import Jobs, JobSettings
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import Cluster, ClusterSpec

CLUSTER = "demo"
FORMER, NEXT = ("1.0.0", "1.34.4", "1"), ("2.0.0", "1.35.4", "2")
"""Driver, kubelet and device plugin before and after."""


JOBS = {
    "gang": JobSettings(members=2),
    "short": JobSettings(arguments=("--steps", "900"), annotations={names.ANNOTATION_EXPECTED_RUNTIME: "2m"}),
    "unwilling": JobSettings(arguments=("--behaviour", "refuse-once", "--retry-after", "10")),
}
"""A job with two members, one that ends by itself and is waited for, and one that refuses once."""

STEPS_BEFORE = 30
INSTALL_SECONDS, TRAIN_SECONDS = 180.0, 60.0


async def play_demo(progress: Progress, show: Progress, *, boxes: int = 4, kwok: int = 20) -> Report:
    """Run the whole demo on a new cluster, which is deleted afterwards; returns the measurements.

    `progress` receives the progress, `show` the output of the commands.
    """
    started = time.monotonic()
    spec = ClusterSpec(name=CLUSTER, boxes=boxes, kwok=kwok, kubelet=FORMER[1], box_labels=POOL)

    async def build_stage(cluster: Cluster) -> Stage:
        return await stage.set_up(cluster, (FORMER[0], NEXT[0]), (FORMER[1], NEXT[1]), progress)

    async with stage.open_stage(spec, build_stage, progress) as demo_stage:
        report = await _play_upgrade(demo_stage, progress, show)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 1))


async def _play_upgrade(demo_stage: Stage, progress: Progress, show: Progress) -> Report:
    controller = demo_stage.controller()
    await asyncio.to_thread(controller.start)
    try:
        driver, kubelet, plugin = FORMER
        progress(f"installing driver {driver} (simulated), device plugin {plugin} and kubelet {kubelet}")
        body, count = demo_stage.stack(driver, kubelet, plugin), len(demo_stage.cluster.box_nodes())
        await scenes.install_stack(demo_stage, controller, body, count, INSTALL_SECONDS)
        jobs = Jobs(demo_stage=demo_stage, job_settings=JOBS, seconds=TRAIN_SECONDS)
        await jobs.start_jobs()
        await jobs.wait_for_steps(progress, additional=STEPS_BEFORE)
        async with demo_stage.admin() as kube:
            before = await evidence.read_versions(kube, demo_stage)
        since = timing.format_time(datetime.now(UTC))
        await scenes.upgrade_nodes(demo_stage, show, _stack_changes(demo_stage))
        await jobs.wait_for_steps(progress, additional=STEPS_BEFORE)
        members = {name: job_settings.members for name, job_settings in JOBS.items()}
        async with demo_stage.admin() as kube:
            return Report(
                jobs=await evidence.read_jobs(kube, demo_stage, members),
                nodes=await evidence.read_nodes(kube, demo_stage, before, since),
                upgrades=await evidence.read_upgrades(kube),
                seconds=0.0,
            )
    finally:
        await asyncio.to_thread(controller.stop)


def _stack_changes(demo_stage: Stage) -> dict[str, str]:
    driver, kubelet, plugin = NEXT
    return {
        "driver.version": driver,
        "devicePlugin.image": demo_stage.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": demo_stage.images.kubelets[kubelet],
    }
