"""The demo with real kernels: the proprietary driver replaces NVIDIA's open one under a running gang; a node reboots.

Two virtual nodes; kernels, modules, device nodes and failures to unload are real, the GPUs are simulated.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.api.resources import NODE_UPGRADES
from upgrader.core.model.phases import NodePhase, UpgradeReason
from upgrader_dev.demo import real_drivers, stage, upgrade_play, waiting
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.real_drivers import OPEN, PROPRIETARY
from upgrader_dev.demo.report import DemoReport, NodeReport, VersionChange
from upgrader_dev.demo.scenes import TrainingJobSettings
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.demo.upgrade_play import CLUSTER, Play
from upgrader_dev.devcluster import ClusterSpec, DevCluster, VirtualNode, kernels_of_virtual_nodes

FORMER, NEXT = ("1.34.4", "1"), ("1.35.4", "2")
"""Kubelet and device plugin before and after."""

JOBS = {"gang": TrainingJobSettings(members=2, arguments=("--step-seconds", "0.5"))}
"""Steps that are not too short: a node's preparation competes with its computation, and an emulated node is slow."""

BACK_SECONDS = 600.0


class LoadedVersions(Struct, frozen=True, kw_only=True):
    """The versions that a node's kernel reports: its release, and the version of the loaded NVIDIA module."""

    kernel: str
    module: str


async def play_demo(progress: Progress, show: Progress, *, vms: int = 2) -> DemoReport:
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

        async def build_stage(cluster: DevCluster) -> Stage:
            return await stage.set_up_virtual(cluster, *versions, progress)

        make_play = partial(_make_play, progress)
        return await upgrade_play.run_play(spec, build_stage, make_play, progress, show, started=started)


def _make_play(progress: Progress, demo_stage: Stage) -> Play:
    machines = demo_stage.cluster.virtual_nodes()
    return Play(
        summary=f"{OPEN.recipe} {OPEN.version}, kubelet {FORMER[0]} (the GPUs alone are simulated)",
        body=demo_stage.real_stack(OPEN, *FORMER),
        nodes=len(machines),
        changes={
            "driver.version": PROPRIETARY.version,
            "driver.recipe": PROPRIETARY.recipe,
            **upgrade_play.version_changes(demo_stage, *NEXT),
        },
        jobs=JOBS,
        steps=10,
        install_seconds=600.0,
        train_seconds=300.0,
        measurements=_RealDrivers(demo_stage, machines, progress),
    )


class _RealDrivers:
    """The kernels and drivers of the nodes before the upgrade, and after a reboot that follows it."""

    def __init__(self, demo_stage: Stage, machines: list[VirtualNode], progress: Progress) -> None:
        self._demo_stage, self._machines, self._progress = demo_stage, machines, progress
        self._before: Mapping[str, LoadedVersions] = {}
        self._after: Mapping[str, LoadedVersions] = {}

    async def before_upgrade(self) -> None:
        """Read the drivers."""
        self._before = await asyncio.to_thread(_loaded_drivers, self._machines)

    async def after_upgrade(self) -> None:
        """Reboot a node into the other kernel, and read the drivers."""
        await _reboot_machine(self._demo_stage, self._machines[-1], self._progress)
        self._after = await asyncio.to_thread(_loaded_drivers, self._machines)

    def add_to_node(self, report: NodeReport) -> NodeReport:
        """The report with the kernel and the driver before and after."""
        first, last = self._before[report.name], self._after[report.name]
        return msgspec.structs.replace(
            report,
            kernel=VersionChange(before=first.kernel, after=last.kernel),
            module=VersionChange(before=first.module, after=last.module),
        )


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


def _loaded_drivers(machines: list[VirtualNode]) -> dict[str, LoadedVersions]:
    return {
        machine.name: LoadedVersions(
            kernel=machine.enter("uname", "-r").text.strip(),
            module=machine.enter("cat", "/sys/module/nvidia/version").text.strip(),
        )
        for machine in machines
    }
