"""Two virtual nodes with real kernels and NVIDIA's real kernel modules; the GPUs alone are simulated.

What every step took, with the kernel and the module that a node then has and the job's step, goes into a report.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import Struct

from tests.e2e.conftest import Pool
from upgrader.api.resources import (
    CONTROLLER_REVISIONS,
    GPU_STACKS,
    JOBS,
    NODE_UPGRADES,
    NODES,
    PODS,
    UPGRADE_PLANS,
)
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase
from upgrader_dev.demo import evidence, real_drivers, waiting
from upgrader_dev.demo import stage as stages
from upgrader_dev.demo.controller import NAMESPACE
from upgrader_dev.demo.journals import read_job
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.real_drivers import OPEN, PROPRIETARY, DeclaredDriver
from upgrader_dev.demo.report import UpgradeReport
from upgrader_dev.demo.scenes import run_command
from upgrader_dev.demo.stage import Stage
from upgrader_dev.devcluster import kernels_of_virtual_nodes

VERSIONS = {OPEN: ("1.34.4", "1"), PROPRIETARY: ("1.35.4", "2")}
JOB = "gang"
STORY, ELSE = Path("build/e2e-vm-report.json"), Path("build/vm-stack-report.json")
REBOOT = {"select": ["/usr/local/sbin/boot-kernel"], "restart": ["/sbin/reboot"]}


class Step(Struct, frozen=True, kw_only=True):
    """What was done, how long it took, and what then was: kernels and modules by node, the job's step."""

    name: str
    ended_well: bool
    seconds: float
    kernel: dict[str, str]
    module_version: dict[str, str]
    job_step: int


class Report:
    """All steps, written again after each, and the upgrades that had ended at the end of each test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.steps: list[Step] = []
        self.upgrades: tuple[UpgradeReport, ...] = ()

    def write(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        whole = msgspec.json.encode({"steps": self.steps, "upgrades": self.upgrades})
        self._path.write_bytes(msgspec.json.format(whole) + b"\n")


MADE = pytest.StashKey[Report]()


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Report:
    story = request.session.items[0].path.stem == "test_story"
    return request.config.stash.setdefault(MADE, Report(STORY if story else ELSE))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the steps and the upgrades took."""
    made = terminalreporter.config.stash.get(MADE, Report(STORY))
    for step in made.steps:
        modules = ", ".join(f"{node} {version or 'no module'}" for node, version in step.module_version.items())
        end = "" if step.ended_well else "; FAILED"
        terminalreporter.write_line(f"{step.seconds:7.1f} s  {step.name}: {modules}; step {step.job_step}{end}")
    for upgrade in made.upgrades:
        closed = (
            "never closed" if upgrade.closed_seconds is None else f"{upgrade.closed_seconds:.1f} s cordon to uncordon"
        )
        terminalreporter.write_line(f"{upgrade.node} {upgrade.reason} {upgrade.phase}: {closed}")


@pytest.fixture(scope="session")
def made(start_cluster: Callable[..., Any], report: Report) -> Iterator[Stage]:
    """Cluster, images, kinds, rights."""
    started = time.monotonic()
    wanted = tuple(VERSIONS), tuple(kubelet for kubelet, _ in VERSIONS.values())
    with tempfile.TemporaryDirectory() as folder:
        kernels = kernels_of_virtual_nodes(print)
        modules = real_drivers.build_hardware(kernels, Path(folder), print)
        images = stages.images_of_virtual_nodes(kernels, *wanted, print)
        cluster = start_cluster("vm", boxes=0, vms=2, vm_labels=POOL, vm_modules=modules, vm_images=images)
    made = asyncio.run(stages.set_up_virtual(cluster, *wanted, print))
    note(report, made, "cluster, images, kinds", started)
    yield made
    stages.remove_stage(made)


class VirtualPool(Pool):
    """The pool of virtual nodes and one controller beside it."""

    report: Report

    async def install_driver(self, driver: DeclaredDriver) -> None:
        kubelet, plugin = VERSIONS[driver]
        await stages.apply_stack(self.kube, self.made.real_stack(driver, kubelet, plugin))
        await self.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == 2, seconds=400)

    async def first_revision(self) -> str:
        """The oldest revision of the stack."""
        found = await self.kube.list(CONTROLLER_REVISIONS, NAMESPACE, labels="gpu-upgrader.io/stack=pool")
        first = min((one for one in found if not one.metadata.owner_references), key=lambda one: one.revision)
        return str(first.metadata.name.removeprefix("pool-"))

    async def rollback(self, revision: str) -> str:
        """`upgrader rollback`; the name of the plan that it starts."""
        before = {one.metadata.name for one in await self.kube.list(UPGRADE_PLANS)}
        await run_command(self.made.cluster, print, "rollback", "--to", revision, "--auto-approve")
        (name,) = {one.metadata.name for one in await self.kube.list(UPGRADE_PLANS)} - before
        return name

    async def blocked(self, plan: str, node: str, reason: str, *, seconds: float = 400) -> str:
        """What a node upgrade is blocked for, once it is for this reason."""
        found: list[str] = []

        async def look() -> bool:
            upgrade = (await self.upgrades(plan)).get(node)
            conditions = upgrade.status.conditions if upgrade is not None else []
            found[:] = [one.message for one in conditions if (one.status, one.reason) == ("True", reason)]
            return bool(found)

        await waiting.poll_until(
            look, seconds, f"the upgrade of {node} is blocked: {reason} (log: {self.controller.log})"
        )
        return found[0]

    async def bring_deadline_forward(self, plan: str, node: str) -> None:
        """The upgrade's phase is over now: its deadline is in the object, and nobody waits for 20 minutes."""
        upgrade = (await self.upgrades(plan))[node].metadata
        body = {"status": {"deadline": timing.format_time(datetime.now(UTC))}}
        api, path = self.made.cluster.api, f"/apis/{NODE_UPGRADES.api_version}/nodeupgrades/{upgrade.name}/status"
        assert await waiting.in_thread(api.patch, path, body) is not None

    async def to(self, driver: DeclaredDriver) -> str:
        """`upgrader plan` and `upgrader apply --watch` to a driver with its kubelet and plugin; the plan's name."""
        kubelet, plugin = VERSIONS[driver]
        changes = changes_to(driver) | {
            "devicePlugin.image": self.made.images.plugins[plugin],
            "kubelet.version": kubelet,
            "kubelet.artifact": self.made.images.kubelets[kubelet],
        }
        return await self.apply_changes(changes)

    async def to_driver(self, driver: DeclaredDriver) -> str:
        """The same of the driver alone; nobody waits for the plan."""
        return await self.apply_changes(changes_to(driver), watch=False)

    async def apply_stack(self, body: dict[str, Any]) -> str:
        """The same to a whole manifest of the stack."""
        kept, forecast = self.made.folder / "stack.yaml", self.made.folder / "forecast.json"
        kept.write_text(yaml.safe_dump(body))
        before = {one.metadata.name for one in await self.kube.list(UPGRADE_PLANS)}
        pace = ("--max-unavailable", "100%", "--no-canary", "--wait-for-completion", "0s")
        await run_command(self.made.cluster, print, "plan", "-f", str(kept), *pace, "-o", str(forecast))
        await run_command(self.made.cluster, print, "apply", str(forecast), "--auto-approve", "--watch")
        (name,) = {one.metadata.name for one in await self.kube.list(UPGRADE_PLANS)} - before
        return name

    async def brought_to(self, body: dict[str, Any]) -> None:
        """All nodes on a stack: installed where there is none yet, else by a plan."""
        if await self.kube.list(GPU_STACKS):
            await self.over(await self.apply_stack(body))
        else:
            await stages.apply_stack(self.kube, body)
        await self.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == 2, seconds=400)

    async def end_job(self, name: str) -> None:
        """The job is deleted, where there is one, and its pods are gone."""
        job = await self.kube.get(JOBS, name, "default")
        if job is not None:
            await self.kube.delete(JOBS, job.metadata)

        async def look() -> bool:
            return not [one for one in await self.kube.list(PODS, "default") if one.metadata.name.startswith(name)]

        await waiting.poll_until(look, 120, f"pods of {name} end")

    async def upgraded(self) -> set[str]:
        """Uids of all upgrades that ever were."""
        return {one.metadata.uid for one in await self.kube.list(NODE_UPGRADES)}

    async def nodes(self) -> dict[str, Any]:
        return {one.metadata.name: one for one in await self.kube.list(NODES)}

    @property
    def machines(self) -> dict[str, Any]:
        return {one.name: one for one in self.made.cluster.virtual_nodes()}

    def modules(self) -> dict[str, str]:
        """The version of the NVIDIA module that each node's kernel has loaded."""
        return {name: module_version(one) for name, one in self.machines.items()}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        except BaseException:
            note(self.report, self.made, name, started, ended_well=False)
            raise
        note(self.report, self.made, name, started)

    async def brought_back(self, node: str, kernel: str, *, seconds: float = 400) -> Any:
        """The upgrade by which a node was repaired on a kernel, once it has ended well."""
        found: list[Any] = []

        async def look() -> bool:
            found[:] = [
                one
                for one in await self.kube.list(NODE_UPGRADES)
                if (one.spec.node.name, one.spec.reason, one.spec.target.kernel) == (node, "Repair", kernel)
                and one.status.phase is NodePhase.SUCCEEDED
            ]
            return bool(found)

        await waiting.poll_until(look, seconds, f"{node} is repaired on {kernel} (log: {self.controller.log})")
        return found[0]


def changes_to(driver: DeclaredDriver) -> dict[str, str]:
    return {"driver.version": driver.version, "driver.recipe": driver.recipe}


def module_version(machine: Any) -> str:
    return machine.enter("sh", "-c", "cat /sys/module/nvidia/version 2>/dev/null || true").text.strip()


def note(report: Report, made: Stage, name: str, started: float, *, ended_well: bool = True) -> None:
    machines = made.cluster.virtual_nodes()
    step = Step(
        name=name,
        ended_well=ended_well,
        seconds=round(time.monotonic() - started, 1),
        kernel={one.name: one.enter("uname", "-r").text.strip() for one in machines},
        module_version={one.name: module_version(one) for one in machines},
        job_step=read_job(made.journals(JOB)).steps_done if made.journals(JOB).is_dir() else 0,
    )
    report.steps.append(step)
    report.write()


@asynccontextmanager
async def opened(made: Stage, report: Report) -> AsyncIterator[VirtualPool]:
    controller = made.controller()
    await asyncio.to_thread(controller.start)
    try:
        async with made.admin() as kube:
            pool = VirtualPool(made, kube, controller)
            pool.report = report
            yield pool
            report.upgrades = await evidence.read_upgrades(kube)
            report.write()
    finally:
        await asyncio.to_thread(controller.stop)


@pytest.fixture
async def pool(made: Stage, report: Report) -> AsyncIterator[VirtualPool]:
    """The pool as the test before it left it."""
    async with opened(made, report) as found:
        yield found
