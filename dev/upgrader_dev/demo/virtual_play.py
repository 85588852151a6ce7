"""The play on real kernels: NVIDIA's open driver gives way to the proprietary one under a gang, then a node reboots.

Two virtual nodes; kernels, modules, device nodes and what unloading refuses are real, the GPUs are simulated.
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
from upgrader_dev.demo.scenes import Cast, Jobs
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import Cluster, ClusterSpec, VirtualNode, kernels_of_virtual_nodes

CLUSTER = "demo"
FORMER, NEXT = ("1.34.4", "1"), ("1.35.4", "2")
"""Kubelet and device plugin before and after."""

JOBS = {"gang": Cast(members=2, arguments=("--step-seconds", "0.5"))}
"""Steps that are not too short: what a node computes is taken from what it prepares, and emulated it has little."""

STEPS_BEFORE = 10
INSTALL_SECONDS, TRAIN_SECONDS, BACK_SECONDS = 600.0, 300.0, 600.0


class Loaded(Struct, frozen=True, kw_only=True):
    """What a node's own kernel says: its release, and the version of the NVIDIA module in it."""

    kernel: str
    module: str


async def play_demo(progress: Progress, show: Progress, *, vms: int = 2) -> Report:
    """The whole demo on a cluster of its own, which is gone afterwards; what was measured.

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

        async def put_up(cluster: Cluster) -> Stage:
            return await stage.set_up_virtual(cluster, *versions, progress)

        async with stage.on_stage(spec, put_up, progress) as made:
            report = await _play_upgrade(made, progress, show)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 1))


async def _play_upgrade(made: Stage, progress: Progress, show: Progress) -> Report:
    controller = made.controller()
    await asyncio.to_thread(controller.start)
    try:
        machines = made.cluster.virtual_nodes()
        progress(f"installing {OPEN.recipe} {OPEN.version}, kubelet {FORMER[0]} (the GPUs alone are simulated)")
        await scenes.install_stack(made, controller, made.real_stack(OPEN, *FORMER), len(machines), INSTALL_SECONDS)
        jobs = Jobs(made=made, cast=JOBS, seconds=TRAIN_SECONDS)
        await jobs.start()
        await jobs.train(progress, more=STEPS_BEFORE)
        loaded = await asyncio.to_thread(_loaded_drivers, machines)
        async with made.admin() as kube:
            before = await evidence.read_versions(kube, made)
        since = timing.format_time(datetime.now(UTC))
        await scenes.upgrade_nodes(made, show, _stack_changes(made))
        await jobs.train(progress, more=STEPS_BEFORE)
        members = {name: cast.members for name, cast in JOBS.items()}
        async with made.admin() as kube:
            told = await evidence.read_jobs(kube, made, members)
        await _reboot_machine(made, machines[-1], progress)
        after = await asyncio.to_thread(_loaded_drivers, machines)
        async with made.admin() as kube:
            nodes = await evidence.read_nodes(kube, made, before, since)
            upgrades = await evidence.read_upgrades(kube)
        return Report(
            jobs=told, nodes=tuple(_with_drivers(one, loaded, after) for one in nodes), upgrades=upgrades, seconds=0.0
        )
    finally:
        await asyncio.to_thread(controller.stop)


async def _reboot_machine(made: Stage, machine: VirtualNode, progress: Progress) -> None:
    """Into the other kernel, by nobody's plan; until the controller has brought the node back."""
    other = machine.kernels[0]
    progress(f"{machine.name} reboots into kernel {other}; nobody asks for anything")
    await asyncio.to_thread(machine.restart, other)
    await asyncio.to_thread(machine.wait_ready)

    async with made.admin() as kube:

        async def look() -> bool:
            return any(
                (one.spec.node.name, one.spec.target.kernel) == (machine.name, other)
                and one.spec.reason is UpgradeReason.REPAIR
                and one.status.phase is NodePhase.SUCCEEDED
                for one in await kube.list(NODE_UPGRADES)
            )

        await waiting.poll_until(look, BACK_SECONDS, f"{machine.name} is repaired on {other}")
    progress(f"{machine.name} was repaired: the driver's image for {other} is loaded")


def _stack_changes(made: Stage) -> dict[str, str]:
    kubelet, plugin = NEXT
    return {
        "driver.version": PROPRIETARY.version,
        "driver.recipe": PROPRIETARY.recipe,
        "devicePlugin.image": made.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": made.images.kubelets[kubelet],
    }


def _loaded_drivers(machines: list[VirtualNode]) -> dict[str, Loaded]:
    return {
        one.name: Loaded(
            kernel=one.enter("uname", "-r").text.strip(),
            module=one.enter("cat", "/sys/module/nvidia/version").text.strip(),
        )
        for one in machines
    }


def _with_drivers(report: NodeReport, before: Mapping[str, Loaded], after: Mapping[str, Loaded]) -> NodeReport:
    first, last = before[report.name], after[report.name]
    return msgspec.structs.replace(
        report,
        kernel=Change(before=first.kernel, after=last.kernel),
        module=Change(before=first.module, after=last.module),
    )
