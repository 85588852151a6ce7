"""A node goes down for the reboot of its upgrade and does not come up again, until somebody switches it on.

Its machine, kernels and boot loader are real; the driver is the simulated one, since nothing here is about modules.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import STARTED
from tests.e2e_vm.conftest import REBOOT, VirtualPool
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.images.publish import push_driver
from upgrader_dev.demo import manifests, waiting
from upgrader_dev.demo import stage as stages
from upgrader_dev.demo.controller import NAMESPACE
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.scenes import run_command
from upgrader_dev.demo.stage import Stage
from upgrader_dev.devcluster import VirtualNode, VmSpec, delete_cluster, kernels_of_virtual_nodes

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1500)]

DRIVER, KUBELET, JOB = "1.0.0", "1.34.4", "works"
NODES = ("vm-a", "vm-b")
ONE_OF_TWO = ("--max-unavailable", "50%", "--no-canary", "--wait-for-completion", "0s")


@pytest.fixture(scope="module")
def made(start_cluster: Callable[..., Any], request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Two machines on the older of their kernels, gone before the next file's are there: each takes a processor."""
    older = kernels_of_virtual_nodes(print)[0]
    cluster = start_cluster("lost", vms=tuple(VmSpec(name=name, kernel=older, labels=POOL) for name in NODES), boxes=0)
    made = asyncio.run(stages.set_up(cluster, (DRIVER,), (KUBELET,), print))
    yield made
    stages.remove_stage(made)
    request.session.stash[STARTED].remove(cluster)
    delete_cluster(cluster.name)


@pytest.fixture
async def pool(made: Stage) -> AsyncIterator[VirtualPool]:
    controller = made.controller()
    await asyncio.to_thread(controller.start, NOTICE_SECONDS="5")  # what is waited for is said soon
    try:
        async with made.admin() as kube:
            yield VirtualPool(made, kube, controller)
    finally:
        await asyncio.to_thread(controller.stop)


async def test_a_node_that_does_not_come_back_from_its_reboot_is_given_up_counted_and_taken_up_again(
    pool: VirtualPool,
) -> None:
    newer = await installed(pool)
    await pool.train(JOB, members=1, arguments=("--step-seconds", "0.5"))
    (busy,) = pool.nodes_of(JOB)
    (idle,) = set(NODES) - {busy}
    machine = pool.machines[idle]
    before = await waiting.in_thread(machine.state)
    plan = await begun(pool, newer)
    await goes_down(machine)

    # it is waited for, in words; nothing else is begun, since its GPUs are all that may be missing
    away = f"the node is not Ready: it has not returned from its reboot into kernel {newer}"
    await upgrade_says(pool, plan, idle, NodePhase.UPGRADING, away)
    running = await pool.kube.get(UPGRADE_PLANS, plan)
    assert (running.status.reason, running.status.message) == ("BatchUnderWay", "batch 1 is in progress")
    await only_it_is_out(pool, plan, idle, busy)

    # its time is over: it goes back, which nobody there can do either
    await pool.bring_deadline_forward(plan, idle)
    silent = "the node is not Ready: it does not respond"
    await upgrade_says(pool, plan, idle, NodePhase.UPGRADING, silent)
    await pool.bring_deadline_forward(plan, idle)
    paused = await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.PAUSED)
    assert (paused.status.reason, [one.reason for one in paused.status.failures]) == (
        "TooManyFailures",
        ["RevertFailed"],
    )
    upgrade = (await pool.upgrades(plan))[idle]
    assert (upgrade.status.phase, upgrade.status.reason) == (NodePhase.FAILED, "RevertFailed")
    late = "Upgrading exceeded its deadline"
    given_up = (
        f"{late}: {silent}; the revert failed: operands stay off and the taint stays; repair the node, then delete "
        f"NodeUpgrade {upgrade.metadata.name} to have the node installed again"
    )
    there_and_back = [one.result for one in upgrade.status.steps if one.name is NodePhase.UPGRADING]
    assert there_and_back == [f"{late}: {away}; reverting", given_up]
    assert upgrade.status.message == given_up
    await its_jobs_are_over(pool, upgrade)

    # a person lets the plan go on: the node counts still
    path = f"/apis/{UPGRADE_PLANS.api_version}/upgradeplans/{plan}"
    await waiting.in_thread(pool.made.cluster.api.patch, path, {"spec": {"toleratedFailures": 1}})
    await pool.eventually(UPGRADE_PLANS, plan, budget_is_taken)
    await only_it_is_out(pool, plan, idle, busy)

    # it is switched on: on another boot, and still apart
    await waiting.in_thread(machine.power_on)
    after = await waiting.in_thread(machine.wait_ready)
    assert (after.kernel, after.boot_id != before.boot_id) == (newer, True)
    await pool.eventually(UPGRADE_PLANS, plan, budget_is_taken)
    await only_it_is_out(pool, plan, idle, busy)

    # the way out that the message and the docs name
    await run_command(pool.made.cluster, print, "force", idle, "--step", "Failed", "--reason", "it was switched off")
    over = await pool.over(plan, seconds=600)
    said = "ended with 1 failure(s), see status.failures"
    assert (over.status.phase, over.status.message) == (PlanPhase.FAILED, said)
    assert {one.status.node_info.kernel_version for one in (await pool.nodes()).values()} == {newer}
    assert await pool.revisions() == {over.spec.target_revision}
    await pool.steps(JOB, 10, members=1, seconds=240)
    story = pool.story(JOB)
    assert (story.interruptions, story.steps_lost) == (1, 0)
    await pool.nothing_left()


async def installed(pool: VirtualPool) -> str:
    """The stack on both nodes, with an image for either kernel; the newer kernel."""
    registry, newer = pool.made.cluster.registry, pool.machines[NODES[0]].kernels[-1]
    image = await waiting.in_thread(push_driver, registry, version=DRIVER, kernel=newer, progress=print)
    await pool.kube.apply(DRIVER_IMAGES, manifests.driver_image(DRIVER, newer, image))
    await stages.apply_stack(pool.kube, pool.made.stack(DRIVER, KUBELET, "1"))
    await pool.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == len(NODES), seconds=400)
    return newer


async def begun(pool: VirtualPool, kernel: str) -> str:
    """`upgrader plan` and `upgrader apply` to the same stack with a reboot into a kernel; the plan's name."""
    body = pool.made.stack(DRIVER, KUBELET, "1")
    body["spec"]["reboot"] = REBOOT | {"kernel": kernel}
    file, forecast = pool.made.folder / "stack.yaml", pool.made.folder / "forecast.json"
    file.write_text(yaml.safe_dump(body))
    await run_command(pool.made.cluster, print, "plan", "-f", str(file), *ONE_OF_TWO, "-o", str(forecast))
    await run_command(pool.made.cluster, print, "apply", str(forecast), "--auto-approve")
    (plan,) = await pool.kube.list(UPGRADE_PLANS)
    return plan.metadata.name


async def goes_down(machine: VirtualNode) -> None:
    """The power fails as soon as the machine has stopped in good order, before it comes up again."""
    console = machine.log("console")

    def stops() -> int:
        return console.read_text(errors="replace").count("node: stopped")

    earlier = stops()
    await waiting.wait_until(lambda: stops() > earlier, seconds=400, what=f"{machine.name} goes down for its reboot")
    await waiting.in_thread(machine.power_off)
    await waiting.in_thread(machine.wait_not_ready)


async def its_jobs_are_over(pool: VirtualPool, upgrade: NodeUpgrade) -> None:
    """As when the deadlines of an upgrade have passed: those of Jobs are as long, and no test waits for that."""
    api, jobs_path = pool.made.cluster.api, f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"

    async def over() -> bool:  # failed they are when their pods have ended, which needs the node
        return all(any(each.type == "FailureTarget" for each in one.status.conditions) for one in await jobs())

    async def jobs() -> list[Any]:
        found = await pool.kube.list(JOBS, NAMESPACE)
        return [one for one in found if any(each.uid == upgrade.metadata.uid for each in one.metadata.owner_references)]

    for one in await jobs():
        await waiting.in_thread(api.patch, f"{jobs_path}/{one.metadata.name}", {"spec": {"activeDeadlineSeconds": 1}})
    await waiting.poll_until(over, 60, "the Jobs of the upgrade are over")


async def upgrade_says(pool: VirtualPool, plan: str, node: str, phase: NodePhase, words: str) -> None:
    name = (await pool.upgrades(plan))[node].metadata.name
    await pool.eventually(
        NODE_UPGRADES, name, lambda one: (one.status.phase, one.status.message) == (phase, words), seconds=120
    )


def budget_is_taken(plan: Any) -> bool:
    return plan.status.phase is PlanPhase.RUNNING and "BudgetTaken" in {one.reason for one in plan.status.blockers}


async def only_it_is_out(pool: VirtualPool, plan: str, out: str, busy: str) -> None:
    """The other node is not begun with, its job is asked for nothing and trains; this one has our taint."""
    await pool.looked_at_again()
    await pool.steps(JOB, 5, members=1, seconds=240)
    assert set(await pool.upgrades(plan)) == {out}
    assert await pool.requests(plan) == []
    assert pool.story(JOB).interruptions == 0
    nodes = await pool.nodes()
    taints = {name: [each.key for each in one.spec.taints if names.GROUP in each.key] for name, one in nodes.items()}
    assert taints == {out: [names.TAINT_MAINTENANCE], busy: []}
