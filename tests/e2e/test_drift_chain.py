"""Drift as a loop: a kernel without an image, the image built by a Job of the cluster, the node back in service.

Real are the Job with its compiler, checks, boot of that kernel and buildah, the registry, and all of the rollout. The
boxes bear that kernel's name only, so the module that was built and booted is not loaded there.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tests.e2e.conftest import POOL_NODES, Pool, opened, other, settled
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS, NODE_UPGRADES, PODS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import DriverImage, NodeUpgrade
from upgrader.core import timing
from upgrader.core.driver_build.build_results import BuildResult, CellState, read_message
from upgrader.core.driver_build.driver_builds import CheckName, FailureClass, Identity
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.driver_image.image_names import image_name, packages_name
from upgrader.core.model.phases import DriverImagePhase, NodePhase, PlanPhase
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.publish import push_builder
from upgrader.images.registry.client import RegistryClient
from upgrader.stack.build_jobs import BUILD
from upgrader_dev.demo import manifests, waiting
from upgrader_dev.demo.controller import NAMESPACE
from upgrader_dev.demo.scenes import run_command
from upgrader_dev.demo.stage import Stage
from upgrader_dev.devcluster import cosign_program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

KERNEL, WITHOUT_DRM = "6.1.0-47-amd64", "6.1.0-50-cloud-amd64"
RECIPE, OS = "sim", "bookworm"
QUICK = {"maxUnavailable": "100%", "canary": {"enabled": False}, "waitForCompletionSeconds": 0}
LIMITS = {"maxInterruptions": 1, "maxLostGpuHours": 50}
CHECKED = {CheckName.CONTENTS: True, CheckName.VERMAGIC: True, CheckName.CRC: True, CheckName.SIGNATURE: None}
CHECKED |= {CheckName.VERSIONS: True, CheckName.BOOT: True}


@dataclass(frozen=True, kw_only=True)
class Works:
    """What builds need: a builder's image, and packages that somebody brings to the registry."""

    registry: str
    builder: str

    @property
    def repository(self) -> str:
        return f"{self.registry}/drivers"

    def pack(self, driver: str, kernel: str) -> str:
        """`upgrader images pack`; the build key."""
        site = Site(WorkspaceSettings(), print)
        catalog = site.current_catalog()
        identity = site.find_identity(catalog, driver=driver, kernel=kernel, os=OS, recipe=RECIPE)
        definition = site.matrix_cells(catalog).define_cell(Cell(identity=identity))
        site.push_packages(definition, packages_name(self.repository, identity), insecure=[self.registry])
        return definition.key

    def controller_settings(self) -> dict[str, str]:
        means = {"IMAGE_REPOSITORY": self.repository, "BUILDER_IMAGE": self.builder}
        return means | {"BUILD_CPU": "1", "BUILD_MEMORY": "3Gi"}

    async def pushed(self, identity: Identity) -> str:
        """What the registry has under the image's name, `name@sha256:...`."""
        async with RegistryClient(insecure=[self.registry]) as client:
            return await client.digest(image_name(self.repository, identity)) or ""


@pytest.fixture(scope="module")
def works(made: Stage) -> Works:
    registry = made.cluster.registry
    return Works(registry=registry, builder=push_builder(registry, cosign=cosign_program(print), progress=print))


@dataclass
class Chain:
    """The pool with a gang on two of its nodes; the third one comes up with another kernel."""

    pool: Pool
    works: Works
    driver: str
    revision: str
    node: str
    job: str
    upgrades_before: set[str]

    async def comes_up_with(self, kernel: str) -> None:
        """The node reboots into a kernel, and its labels say so, as node-feature-discovery would write them."""
        box = self.pool.made.cluster.box_node(self.node)

        def power_cycle() -> None:
            box.set_kernel(kernel)
            box.power_off()
            box.power_on()
            box.wait_ready()

        await waiting.in_thread(power_cycle)
        labels = {names.LABEL_KERNEL_NFD: kernel.replace("+", "_")}
        patch = self.pool.made.cluster.api.patch
        await waiting.in_thread(patch, f"/api/v1/nodes/{self.node}", {"metadata": {"labels": labels}})

    async def told(self, kind: str, reason: str, *, seconds: float = 120) -> str:
        """What a condition of the stack says, once it gives this reason."""

        def said(stack: Any) -> list[str]:
            return [one.message for one in stack.status.conditions if (one.type, one.reason) == (kind, reason)]

        return said(await self.pool.eventually(GPU_STACKS, "pool", lambda one: bool(said(one)), seconds=seconds))[0]

    async def reasons(self) -> dict[str, list[str]]:
        """`upgrader drift`: the reasons of each node that differs."""
        done = await run_command(self.pool.made.cluster, print, "drift", "--output", "json")
        found = msgspec.json.decode(done.stdout)["drift"]
        return {one["node"]: [each["reason"] for each in one["findings"]] for one in found}

    async def image(self, driver: str, kernel: str, *phases: DriverImagePhase, seconds: float = 240) -> DriverImage:
        """The DriverImage that the stack asked for, once it is in one of these phases."""
        found: list[DriverImage] = []

        async def look() -> bool:
            images = await self.pool.kube.list(DRIVER_IMAGES, labels=f"{names.LABEL_STACK}=pool")
            found[:] = [one for one in images if (one.spec.version, one.spec.kernel) == (driver, kernel)]
            return bool(found) and found[0].status.phase in phases

        wanted = " or ".join(phases)
        await waiting.poll_until(
            look, seconds, f"image of {driver} for {kernel}: {wanted} (log: {self.pool.controller.log})"
        )
        return found[0]

    async def built(self, image: DriverImage) -> BuildResult:
        """What the only Job of an image said when it ended."""
        uid = image.metadata.uid
        jobs = [one for one in await self.pool.kube.list(JOBS, NAMESPACE) if _owned(one, uid)]
        pods = await self.pool.kube.list(PODS, NAMESPACE, labels=f"{names.LABEL_COMPONENT}={BUILD}")
        (job,) = jobs
        (pod,) = [one for one in pods if _owned(one, job.metadata.uid)]
        (container,) = pod.status.container_statuses
        assert container.state.terminated is not None
        result = read_message(container.state.terminated.message)
        assert isinstance(result, BuildResult)
        return result

    async def upgrades(self) -> list[NodeUpgrade]:
        """Node upgrades of this test."""
        return [
            one for one in await self.pool.kube.list(NODE_UPGRADES) if one.metadata.name not in self.upgrades_before
        ]

    async def brought_back(self, kernel: str) -> NodeUpgrade:
        """The one upgrade by which the node was repaired on a kernel, once it has ended well."""
        found: list[NodeUpgrade] = []

        async def look() -> bool:
            ended = [one for one in await self.upgrades() if one.status.phase is NodePhase.SUCCEEDED]
            found[:] = [one for one in ended if (one.spec.reason, one.spec.target.kernel) == ("Repair", kernel)]
            return bool(found)

        await waiting.poll_until(look, 180, f"{self.node} is repaired on {kernel} (log: {self.pool.controller.log})")
        (upgrade,) = found
        return upgrade

    async def removed_driver(self) -> None:
        async def look() -> bool:
            return names.ANNOTATION_REMOVED_DRIVER in (await self.pool.nodes())[self.node].metadata.annotations

        await waiting.poll_until(
            look, 120, f"the driver of {self.node} is taken away (log: {self.pool.controller.log})"
        )

    async def in_service(self) -> None:
        """The node has its driver and its revision again, and nothing differs anywhere."""

        async def look() -> bool:
            meta = (await self.pool.nodes())[self.node].metadata
            marked = {names.ANNOTATION_REMOVED_DRIVER, names.ANNOTATION_CLAIMED_BY} & set(meta.annotations)
            return names.LABEL_REVISION in meta.labels and not marked

        await waiting.poll_until(look, 180, f"{self.node} is given back (log: {self.pool.controller.log})")
        await self.pool.looked_at_again()
        await self.pool.eventually(
            GPU_STACKS, "pool", lambda one: (one.status.ready, one.status.drifted) == (len(POOL_NODES), 0), seconds=120
        )

    async def gang_goes_on(self, *, interruptions: int) -> None:
        await self.pool.steps(self.job, 10)
        story = self.pool.story(self.job)
        assert (story.interruptions, story.steps_lost) == (interruptions, 0)


def _owned(one: Any, uid: str) -> bool:
    return any(owner.uid == uid for owner in one.metadata.owner_references)


async def _put_back(chain: Chain) -> None:
    """The node has the kernel of the others again, and the stack does nothing by itself."""
    pool = chain.pool
    await pool.clear()
    path = f"/apis/{GPU_STACKS.api_version}/gpustacks/pool"
    nothing = {"spec": {"onDrift": "Report", "driftPlan": None}}
    await waiting.in_thread(pool.made.cluster.api.patch, path, nothing)
    if (await pool.nodes())[chain.node].status.node_info.kernel_version != pool.made.kernel:
        await chain.comes_up_with(pool.made.kernel)
        await chain.brought_back(pool.made.kernel)
    await chain.in_service()
    for image in await pool.kube.list(DRIVER_IMAGES, labels=f"{names.LABEL_STACK}=pool"):
        await pool.kube.delete(DRIVER_IMAGES, image.metadata)


@pytest.fixture
async def chain(made: Stage, works: Works) -> AsyncIterator[Chain]:
    async with opened(made, "builds", **works.controller_settings()) as pool:
        driver = await settled(pool)
        for version, image in made.images.drivers.items():  # whoever brought them says by which recipe they are made
            body = manifests.driver_image(version, made.kernel, image)
            await pool.kube.apply(DRIVER_IMAGES, body | {"spec": body["spec"] | {"recipe": RECIPE, "os": OS}})
        job = f"bystander-{uuid.uuid4().hex[:6]}"
        await pool.train(job)
        (idle,) = set(POOL_NODES) - set(pool.nodes_of(job))
        before = {one.metadata.name for one in await pool.kube.list(NODE_UPGRADES)}
        (revision,) = await pool.revisions()
        chain = Chain(pool, works, driver, revision, idle, job, before)
        try:
            yield chain
        finally:
            await _put_back(chain)


async def test_from_a_new_kernel_to_an_image_built_for_it_and_on_to_the_next_driver(chain: Chain) -> None:
    pool, works, driver = chain.pool, chain.works, chain.driver
    await chain.comes_up_with(KERNEL)
    await chain.removed_driver()

    # drift with its reasons; the image is asked for, and nobody has brought what it is made of
    counted = [("DriverAbsent", 1, [chain.node]), ("OperandsOff", 1, [chain.node])]
    drifted = await pool.eventually(
        GPU_STACKS, "pool", lambda one: [(each.reason, each.nodes, each.names) for each in one.status.drift] == counted
    )
    assert (drifted.status.drifted, drifted.status.ready) == (1, len(POOL_NODES) - 1)
    assert await chain.reasons() == {chain.node: ["DriverAbsent", "OperandsOff", "NoDriverImage"]}
    asked = await chain.image(driver, KERNEL, DriverImagePhase.PENDING)
    identity = Identity(vendor="sim", recipe=RECIPE, driver=driver, kernel=KERNEL, os=OS)
    spec = {"vendor": "sim", "version": driver, "kernel": KERNEL, "recipe": RECIPE, "os": OS, "arch": "amd64"}
    assert {key: value for key, value in msgspec.to_builtins(asked.spec).items() if value is not None} == spec
    packages = packages_name(works.repository, identity)
    why = f"the packages of the image are not in the registry as {packages}: run `upgrader images pack`"
    said = await chain.told("Installed", "NoDriverImage")
    assert said.startswith(
        f"1 node(s) ({chain.node}): There is no Ready DriverImage for sim {driver} on kernel {KERNEL}. "
        f"DriverImage {asked.metadata.name} is Pending: {why}. Alternatives: kernel "
    )
    await chain.gang_goes_on(interruptions=0)
    assert await chain.upgrades() == []

    # built, and the node brought back with exactly that
    key = await waiting.in_thread(works.pack, driver, KERNEL)
    image = await chain.image(driver, KERNEL, DriverImagePhase.READY)
    assert (image.status.build_key, image.status.digest) == (key, await works.pushed(identity))
    result = await chain.built(image)
    assert (result.identity, result.state, result.build_key) == (identity, CellState.GREEN, key)
    assert (result.digest, result.failure) == (image.status.digest, None)
    assert {one.check: one.passed for one in result.checks} == CHECKED
    upgrade = await chain.brought_back(KERNEL)
    target = upgrade.spec.target
    assert (upgrade.spec.plan, upgrade.spec.node.name) == (None, chain.node)
    assert (target.driver_version, target.driver_image, target.driver_key, target.revision) == (
        driver,
        image.status.digest,
        image.status.key,
        chain.revision,
    )
    await chain.in_service()
    assert await chain.reasons() == {}
    assert [one.metadata.name for one in await chain.upgrades()] == [upgrade.metadata.name]
    assert (await pool.nodes())[chain.node].metadata.labels[names.LABEL_DRIVER] == image.status.key
    await chain.gang_goes_on(interruptions=0)
    await pool.nothing_left()

    await _the_next_driver(chain)


async def _the_next_driver(chain: Chain) -> None:
    """The same kernel, another driver: the image is built before the plan is made, and the stack approves it."""
    pool, works, after = chain.pool, chain.works, other(chain.driver)
    body = pool.stack(after)
    wanted = {"onDrift": "Approve", "driftPlan": {"strategy": QUICK, "limits": LIMITS}}
    former = {one.metadata.name for one in await pool.kube.list(UPGRADE_PLANS)}
    await pool.kube.apply(GPU_STACKS, body | {"spec": body["spec"] | wanted})
    await chain.image(after, KERNEL, DriverImagePhase.PENDING)
    await waiting.in_thread(works.pack, after, KERNEL)
    image = await chain.image(after, KERNEL, DriverImagePhase.READY)
    (plan,) = await _plans(chain, former)
    over = await pool.over(plan)
    assert over.status.phase is PlanPhase.COMPLETED
    assert over.spec.approval.by.startswith("GpuStack pool, generation ")
    (verified,) = image.status.conditions
    assert timing.parse_time(over.metadata.creation_timestamp) >= timing.parse_time(verified.last_transition_time)
    upgrades = await pool.upgrades(plan)
    brought = pool.made.images.drivers[after]
    assert {name: one.spec.target.driver_image for name, one in upgrades.items()} == {
        name: image.status.digest if name == chain.node else brought for name in POOL_NODES
    }
    await chain.told("OnDrift", "NoDrift")
    await chain.in_service()
    assert await chain.reasons() == {}
    await chain.gang_goes_on(interruptions=1)
    await pool.nothing_left()


async def _plans(chain: Chain, former: set[str]) -> list[str]:
    """Names of the plans that the stack made beside the former ones, once there is one."""
    found: list[str] = []

    async def look() -> bool:
        plans = await chain.pool.kube.list(UPGRADE_PLANS, labels=f"{names.LABEL_STACK}=pool")
        found[:] = [one.metadata.name for one in plans if one.metadata.name not in former]
        return bool(found)

    await waiting.poll_until(look, 120, f"a plan is made (log: {chain.pool.controller.log})")
    return found


async def test_a_kernel_that_no_image_can_be_built_for_is_named_with_the_compilers_words_and_drains_nothing(
    chain: Chain,
) -> None:
    pool, works, driver = chain.pool, chain.works, chain.driver
    await waiting.in_thread(works.pack, driver, WITHOUT_DRM)
    await chain.comes_up_with(WITHOUT_DRM)
    image = await chain.image(driver, WITHOUT_DRM, DriverImagePhase.UNBUILDABLE)
    failure = image.status.failure
    assert failure is not None
    assert failure.sort is FailureClass.COMPILE
    assert '#error "simgpu needs a kernel with DRM"' in failure.first_error
    result = await chain.built(image)
    assert (result.state, result.digest, result.build_key) == (CellState.RED, "", image.status.build_key)
    await chain.removed_driver()
    await pool.eventually(
        GPU_STACKS, "pool", lambda one: any("is Unbuildable" in each.message for each in one.status.conditions)
    )
    said = await chain.told("Installed", "NoDriverImage")
    assert said.startswith(
        f"1 node(s) ({chain.node}): There is no Ready DriverImage for sim {driver} on kernel {WITHOUT_DRM}. "
        f"DriverImage {image.metadata.name} is Unbuildable: compile: {failure.first_error}. Alternatives: kernel "
    )
    await pool.looked_at_again()
    assert await chain.upgrades() == []
    await chain.gang_goes_on(interruptions=0)
    await pool.nothing_left()

    # the way out: the kernel that it had
    await chain.comes_up_with(pool.made.kernel)
    upgrade = await chain.brought_back(pool.made.kernel)
    assert upgrade.spec.target.driver_image == pool.made.images.drivers[driver]
    await chain.in_service()
    await chain.gang_goes_on(interruptions=0)
