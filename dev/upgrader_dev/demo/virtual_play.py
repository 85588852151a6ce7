"""The demo with real kernels: the proprietary driver replaces NVIDIA's open one under a running gang; a node reboots.

Two virtual nodes; kernels, modules, device nodes and failures to unload are real, the GPUs are simulated.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.api.resources import NODE_UPGRADES
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, UpgradeReason
from upgrader_dev.demo import evidence, real_drivers, scenes, stage, waiting
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.real_drivers import OPEN, PROPRIETARY
from upgrader_dev.demo.report import Change, NodeReport, Report
from upgrader_dev.demo.scenes import Jobs, JobSettings
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import Cluster, ClusterSpec, VirtualNode, kernels_of_virtual_nodes

CLUSTER = "demo"
FORMER, NEXT = ("1.34.4", "1"), ("1.35.4", "2")
"""Kubelet and device plugin before and after."""

JOBS = {"gang": JobSettings(members=2, arguments=("--step-seconds", "0.5"))}
"""Steps that are not too short: a node's preparation competes with its computation, and an emulated node is slow."""

STEPS_BEFORE = 10
INSTALL_SECONDS, TRAIN_SECONDS, BACK_SECONDS = 600.0, 300.0, 600.0


class Loaded(Struct, frozen=True, kw_only=True):
    """The versions that a node's kernel reports: its release, and the version of the loaded NVIDIA module."""

    kernel: str
    module: str


async def play_demo(progress: Progress, show: Progress, *, vms: int = 2) -> Report:
    """Run the whole demo on a new cluster, which is deleted afterwards; returns the measurements.

    Raises:
        ConfigurationError: a driver cannot be built for one of the kernels.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="upgrader-") as folder:
        kernels = await asyncio.to_thread(kernels_of_virtual_nodes, progress)
        modules = await asyncio.to_thread(real_drivers.build_hardware, kernels, Path(folder), progress)
        versions = (OPEN, PROPRIETARY), (FORMER[0], NEXT[0])
        images = await asyncio.to_thread(stage.images_of_virtual_nodes, kernels, *versions, progress)
        progress(f"{len(images)} images are on the nodes' disks before they boot")
        spec = ClusterSpec(
            name=CLUSTER,
            boxes=0,
            vms=vms,
            kubelet=FORMER[0],
            vm_labels=POOL,
            vm_modules=modules,
            vm_images=images,
        )

        async def build_stage(cluster: Cluster) -> Stage:
            return await stage.set_up_virtual(cluster, *versions, progress)

        async with stage.open_stage(spec, build_stage, progress) as demo_stage:
            report = await _play_upgrade(demo_stage, progress, show)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 1))


async def _play_upgrade(demo_stage: Stage, progress: Progress, show: Progress) -> Report:
    controller = demo_stage.controller()
    await asyncio.to_thread(controller.start)
    try:
        machines = demo_stage.cluster.virtual_nodes()
        progress(f"installing {OPEN.recipe} {OPEN.version}, kubelet {FORMER[0]} (the GPUs alone are simulated)")
        await scenes.install_stack(
            demo_stage, controller, demo_stage.real_stack(OPEN, *FORMER), len(machines), INSTALL_SECONDS
        )
        jobs = Jobs(demo_stage=demo_stage, job_settings=JOBS, seconds=TRAIN_SECONDS)
        await jobs.start_jobs()
        await jobs.wait_for_steps(progress, additional=STEPS_BEFORE)
        loaded = await asyncio.to_thread(_loaded_drivers, machines)
        async with demo_stage.admin() as kube:
            before = await evidence.read_versions(kube, demo_stage)
        since = timing.format_time(datetime.now(UTC))
        await scenes.upgrade_nodes(demo_stage, show, _stack_changes(demo_stage))
        await jobs.wait_for_steps(progress, additional=STEPS_BEFORE)
        members = {name: job_settings.members for name, job_settings in JOBS.items()}
        async with demo_stage.admin() as kube:
            job_reports = await evidence.read_jobs(kube, demo_stage, members)
        await _reboot_machine(demo_stage, machines[-1], progress)
        after = await asyncio.to_thread(_loaded_drivers, machines)
        async with demo_stage.admin() as kube:
            nodes = await evidence.read_nodes(kube, demo_stage, before, since)
            upgrades = await evidence.read_upgrades(kube)
        return Report(
            jobs=job_reports,
            nodes=tuple(_with_drivers(node, loaded, after) for node in nodes),
            upgrades=upgrades,
            seconds=0.0,
        )
    finally:
        await asyncio.to_thread(controller.stop)


async def _reboot_machine(demo_stage: Stage, machine: VirtualNode, progress: Progress) -> None:
    """Reboot into the other kernel without a plan, and wait until the controller has repaired the node."""
    other = machine.kernels[0]
    progress(f"{machine.name} reboots into kernel {other}; no plan requests it")
    await asyncio.to_thread(machine.restart, other)
    await asyncio.to_thread(machine.wait_ready)

    async with demo_stage.admin() as kube:

        async def is_repaired() -> bool:
            return any(
                (upgrade.spec.node.name, upgrade.spec.target.kernel) == (machine.name, other)
                and upgrade.spec.reason is UpgradeReason.REPAIR
                and upgrade.status.phase is NodePhase.SUCCEEDED
                for upgrade in await kube.list(NODE_UPGRADES)
            )

        await waiting.poll_until(is_repaired, BACK_SECONDS, f"{machine.name} is repaired on {other}")
    progress(f"{machine.name} was repaired: the driver's image for {other} is loaded")


def _stack_changes(demo_stage: Stage) -> dict[str, str]:
    kubelet, plugin = NEXT
    return {
        "driver.version": PROPRIETARY.version,
        "driver.recipe": PROPRIETARY.recipe,
        "devicePlugin.image": demo_stage.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": demo_stage.images.kubelets[kubelet],
    }


def _loaded_drivers(machines: list[VirtualNode]) -> dict[str, Loaded]:
    return {
        machine.name: Loaded(
            kernel=machine.enter("uname", "-r").text.strip(),
            module=machine.enter("cat", "/sys/module/nvidia/version").text.strip(),
        )
        for machine in machines
    }


def _with_drivers(report: NodeReport, before: Mapping[str, Loaded], after: Mapping[str, Loaded]) -> NodeReport:
    first, last = before[report.name], after[report.name]
    return msgspec.structs.replace(
        report,
        kernel=Change(before=first.kernel, after=last.kernel),
        module=Change(before=first.module, after=last.module),
    )
