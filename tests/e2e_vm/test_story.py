"""The hardest promise on real kernels, told in order: each test goes on where the one before it stopped.

The job's own log is the witness of steps, and /sys of what is loaded.
"""

from collections.abc import Iterator

import pytest

from tests.e2e_vm.conftest import JOB, REBOOT, VirtualPool
from upgrader.api.resources import DRIVER_IMAGES, UPGRADE_PLANS
from upgrader.core.model.phases import DriverImagePhase, NodePhase, PlanPhase
from upgrader_dev.demo import real_drivers, waiting
from upgrader_dev.demo.real_drivers import OPEN, PROPRIETARY
from upgrader_dev.demo.scenes import run_command

PACE = ("--step-seconds", "0.5")
pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]


def versions(pool: VirtualPool, *expected: str) -> None:
    assert sorted(pool.modules().values()) == sorted(expected)


async def test_the_open_driver_is_installed_and_a_gang_trains_on_it(pool: VirtualPool) -> None:
    with pool.step("install"):
        await pool.install_driver(OPEN)
    versions(pool, OPEN.version, OPEN.version)
    with pool.step("train"):
        await pool.train(JOB, arguments=PACE)


async def test_driver_flavour_plugin_and_kubelet_are_swapped_in_one_upgrade_and_no_step_is_lost(
    pool: VirtualPool,
) -> None:
    with pool.step("swap"):
        plan = await pool.to(PROPRIETARY)
    assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
    versions(pool, PROPRIETARY.version, PROPRIETARY.version)
    assert await pool.kubelets() == {"v1.35.4"}
    await pool.steps(JOB, 20)
    story = pool.story(JOB)
    assert (story.steps_lost, story.interruptions) == (0, 1)
    (request,) = await pool.requests(plan)
    assert story.resumed_from == request.status.acknowledged_step
    await pool.nothing_left()


async def test_a_node_that_came_back_with_the_other_kernel_is_brought_back_without_anybody(pool: VirtualPool) -> None:
    machine = pool.machines["vm-b"]
    other = machine.kernels[0]
    with pool.step("reboot into the other kernel, brought back"):
        await waiting.in_thread(machine.restart, other)
        await waiting.in_thread(machine.wait_ready)
        upgrade = await pool.brought_back("vm-b", other)
    assert (upgrade.spec.plan, upgrade.spec.target.driver_version) == (None, PROPRIETARY.version)
    versions(pool, PROPRIETARY.version, PROPRIETARY.version)
    await pool.steps(JOB, 10, seconds=240)
    await pool.nothing_left()


async def test_an_image_for_another_kernel_is_refused_before_anybody_is_asked(pool: VirtualPool) -> None:
    """The image says in its manifest for which kernel it is, whatever its DriverImage says."""
    kernels = pool.machines["vm-a"].kernels
    right, wrong = (real_drivers.driver_image(OPEN, one, "")["metadata"]["name"] for one in (kernels[-1], kernels[0]))
    image = await pool.kube.get(DRIVER_IMAGES, right)
    other = await pool.kube.get(DRIVER_IMAGES, wrong)
    await pool.kube.delete(DRIVER_IMAGES, image.metadata)
    await pool.kube.apply(DRIVER_IMAGES, real_drivers.driver_image(OPEN, kernels[-1], other.status.digest))
    await pool.eventually(DRIVER_IMAGES, right, lambda one: one.status.phase is DriverImagePhase.READY)
    before = pool.story(JOB).interruptions
    with pool.step("an image for another kernel is refused"):
        plan = await pool.to_driver(OPEN)
        await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.PAUSED, seconds=400)
        upgrades = await pool.upgrades(plan)
    assert upgrades["vm-a"].status.phase is NodePhase.FAILED
    assert [one.name for one in upgrades["vm-a"].status.steps] == [NodePhase.PREPARING]
    assert f"the image is for kernel {kernels[0]}" in upgrades["vm-a"].status.message
    assert await pool.requests(plan) == []
    assert pool.story(JOB).interruptions == before
    versions(pool, PROPRIETARY.version, PROPRIETARY.version)
    await run_command(pool.made.cluster, print, "abort", plan)
    await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.ABORTED)
    await pool.kube.delete(DRIVER_IMAGES, (await pool.kube.get(DRIVER_IMAGES, right)).metadata)
    await pool.kube.apply(DRIVER_IMAGES, real_drivers.driver_image(OPEN, kernels[-1], image.status.digest))
    await pool.eventually(DRIVER_IMAGES, right, lambda one: one.status.phase is DriverImagePhase.READY)


async def test_a_kernel_is_upgraded_by_the_upgrade_after_an_acknowledgement(pool: VirtualPool) -> None:
    newest = pool.machines["vm-b"].kernels[-1]
    before = pool.story(JOB)
    body = pool.made.real_stack(PROPRIETARY, "1.35.4", "2", reboot=REBOOT | {"kernel": newest})
    with pool.step("planned kernel upgrade"):
        plan = await pool.apply_stack(body)
    assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
    assert {one.status.node_info.kernel_version for one in (await pool.nodes()).values()} == {newest}
    versions(pool, PROPRIETARY.version, PROPRIETARY.version)
    await pool.steps(JOB, 10, seconds=240)
    story = pool.story(JOB)
    assert (story.steps_lost, story.interruptions) == (before.steps_lost, before.interruptions + 1)
    await pool.nothing_left()


@pytest.fixture
def stranger(pool: VirtualPool) -> Iterator[str]:
    """A process outside Kubernetes that holds the driver of vm-a; its pid."""
    machine = pool.machines["vm-a"]
    pid = machine.enter("sh", "-c", "setsid sleep 3000 </dev/nvidiactl >/dev/null 2>&1 & echo $!").text.strip()
    yield pid
    machine.enter("sh", "-c", f"kill {pid} 2>/dev/null || true")


async def test_one_command_leads_back_to_the_first_version_past_a_stranger_who_is_named_and_waited_for(
    pool: VirtualPool, stranger: str
) -> None:
    before = pool.story(JOB)
    revision = await pool.first_revision()
    with pool.step("rollback to the first version; a stranger holds the driver, is named, goes"):
        plan = await pool.rollback(revision)
        blocked = await pool.blocked(plan, "vm-a", "DriverBusy")
        assert f"pid {stranger} (sleep)" in blocked
        assert pool.modules()["vm-a"] == PROPRIETARY.version
        pool.machines["vm-a"].enter("kill", stranger)
        assert (await pool.over(plan, seconds=600)).status.phase is PlanPhase.COMPLETED
    assert await pool.revisions() == {revision}
    versions(pool, OPEN.version, OPEN.version)
    await pool.steps(JOB, 10, seconds=240)
    story = pool.story(JOB)
    assert (story.steps_lost, story.interruptions) == (before.steps_lost, before.interruptions + 1)
    await pool.nothing_left()


async def test_where_it_does_not_go_the_group_reverts_and_the_old_module_never_left(
    pool: VirtualPool, stranger: str
) -> None:
    before = pool.story(JOB)
    with pool.step("a stranger holds the driver up to the deadline; all of it went back"):
        plan = await pool.to_driver(PROPRIETARY)
        await pool.blocked(plan, "vm-a", "DriverBusy")
        await pool.bring_deadline_forward(plan, "vm-a")
        await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.PAUSED, seconds=600)
    upgrades = await pool.upgrades(plan)
    assert {one.status.phase for one in upgrades.values()} == {NodePhase.FAILED}
    assert f"pid {stranger} (sleep)" in upgrades["vm-a"].status.message
    versions(pool, OPEN.version, OPEN.version)
    assert pool.machines["vm-a"].enter("kill", "-0", stranger).code == 0
    await pool.steps(JOB, 10, seconds=240)
    story = pool.story(JOB)
    assert (story.steps_lost, story.interruptions) == (before.steps_lost, before.interruptions + 1)
    await pool.nothing_left()
