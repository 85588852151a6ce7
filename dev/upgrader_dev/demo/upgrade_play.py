"""The frame of both demos: a pool on its former versions, jobs that train on it, an upgrade, and the measurements."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from upgrader.core import timing
from upgrader_dev.demo import evidence, scenes, stage
from upgrader_dev.demo.manifests import Manifest
from upgrader_dev.demo.report import DemoReport, NodeReport
from upgrader_dev.demo.scenes import Jobs, TrainingJobSettings
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import ClusterSpec, DevCluster

CLUSTER = "demo"


class Measurements(Protocol):
    """Measurements of one demo in addition to those of both."""

    async def before_upgrade(self) -> None:
        """Measure while the jobs train on the former versions."""
        ...

    async def after_upgrade(self) -> None:
        """Act and measure when the nodes are upgraded and the jobs are reported."""
        ...

    def add_to_node(self, report: NodeReport) -> NodeReport:
        """The report of a node with these measurements."""
        ...


class NoMeasurements:
    """No additional measurements."""

    async def before_upgrade(self) -> None:
        """Does nothing."""

    async def after_upgrade(self) -> None:
        """Does nothing."""

    def add_to_node(self, report: NodeReport) -> NodeReport:
        """The same report."""
        return report


class Play(Struct, frozen=True, kw_only=True):
    """What distinguishes a demo.

    Args:
        summary: the former versions, for the progress.
        body: the stack with the former versions.
        nodes: number of nodes that it installs.
        changes: fields of the stack that the upgrade changes, by path.
        jobs: settings of the jobs, by name.
        steps: steps of each job before the upgrade, and after it.
        install_seconds, train_seconds: bounds of the installation, and of these steps.
        measurements: those of this demo.
    """

    summary: str
    body: Manifest
    nodes: int
    changes: Mapping[str, str]
    jobs: Mapping[str, TrainingJobSettings]
    steps: int
    install_seconds: float
    train_seconds: float
    measurements: Measurements = NoMeasurements()


def version_changes(demo_stage: Stage, kubelet: str, plugin: str) -> dict[str, str]:
    """The changes of a stack to other releases of the kubelet and of the device plugin."""
    return {
        "devicePlugin.image": demo_stage.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": demo_stage.images.kubelets[kubelet],
    }


async def run_play(
    spec: ClusterSpec,
    build_stage: Callable[[DevCluster], Awaitable[Stage]],
    make_play: Callable[[Stage], Play],
    progress: Progress,
    show: Progress,
    *,
    started: float,
) -> DemoReport:
    """Run a demo on a new cluster, which is deleted afterwards; returns the measurements.

    `started`: monotonic time from which the seconds of the report count.
    """
    async with stage.open_stage(spec, build_stage, progress) as demo_stage:
        controller = demo_stage.controller()
        await asyncio.to_thread(controller.start)
        try:
            play = make_play(demo_stage)
            progress(f"installing {play.summary}")
            await scenes.install_stack(demo_stage, controller, play.body, play.nodes, play.install_seconds)
            report = await _play_upgrade(demo_stage, play, progress, show)
        finally:
            await asyncio.to_thread(controller.stop)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 1))


async def _play_upgrade(demo_stage: Stage, play: Play, progress: Progress, show: Progress) -> DemoReport:
    jobs = Jobs(demo_stage=demo_stage, job_settings=play.jobs, seconds=play.train_seconds)
    await jobs.start_jobs()
    await jobs.wait_for_steps(progress, additional=play.steps)
    await play.measurements.before_upgrade()
    async with demo_stage.admin() as kube:
        before = await evidence.read_versions(kube, demo_stage)
    since = timing.format_time(datetime.now(UTC))
    await scenes.upgrade_nodes(demo_stage, show, play.changes)
    await jobs.wait_for_steps(progress, additional=play.steps)
    members = {name: settings.members for name, settings in play.jobs.items()}
    async with demo_stage.admin() as kube:
        job_reports = await evidence.read_jobs(kube, demo_stage, members)
    await play.measurements.after_upgrade()
    async with demo_stage.admin() as kube:
        nodes = await evidence.read_nodes(kube, demo_stage, before, since)
        upgrades = await evidence.read_upgrades(kube)
    return DemoReport(
        jobs=job_reports,
        nodes=tuple(play.measurements.add_to_node(node) for node in nodes),
        upgrades=upgrades,
        seconds=0.0,
    )
