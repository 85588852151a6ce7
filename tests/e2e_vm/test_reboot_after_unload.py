"""A driver that cannot be unloaded is ended by a reboot of its node into the kernel that it runs.

The machine, its kernels and its boot loader are real; the driver is the simulated one, whose `unload` reports the
processes that hold its devices.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.conftest import STARTED
from tests.e2e_vm.conftest import REBOOT, VirtualPool
from upgrader.api.resources import GPU_STACKS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader_dev.demo import stage as stages
from upgrader_dev.demo import waiting
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.stage import Stage
from upgrader_dev.devcluster import VmSpec, delete_cluster, kernels_of_virtual_nodes

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1500)]

DRIVERS, KUBELET, NODE = ("1.0.0", "2.0.0"), "1.34.4", "vm-a"
RUN = "/run/gpu-upgrader/sim"


@pytest.fixture(scope="module")
def made(start_cluster: Callable[..., Any], request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One machine on the older of its kernels, gone before the next file's are there."""
    kernels = kernels_of_virtual_nodes(print)
    images = stages.images_of_virtual_nodes(kernels, (), (KUBELET,), print)
    machines = (VmSpec(name=NODE, kernel=kernels[0], labels=POOL),)
    cluster = start_cluster("unload", vms=machines, vm_images=images, boxes=0)
    made = asyncio.run(stages.set_up(cluster, DRIVERS, (KUBELET,), print))
    yield made
    stages.remove_stage(made)
    request.session.stash[STARTED].remove(cluster)
    delete_cluster(cluster.name)


@pytest.fixture
async def pool(made: Stage) -> AsyncIterator[VirtualPool]:
    controller = made.controller()
    await asyncio.to_thread(controller.start)
    try:
        async with made.admin() as kube:
            yield VirtualPool(made, kube, controller)
    finally:
        await asyncio.to_thread(controller.stop)


def stack(pool: VirtualPool, driver: str, kernel: str) -> dict[str, Any]:
    body = pool.made.stack(driver, KUBELET, "1")
    body["spec"]["driver"]["onUnloadFailure"] = "Reboot"
    return body | {"spec": body["spec"] | {"reboot": REBOOT | {"kernel": kernel}}}


async def upgrading(pool: VirtualPool, plan: str) -> str:
    """The result of the phase Upgrading of a plan that has completed."""
    over = await pool.over(plan, seconds=900)
    assert over.status.phase is PlanPhase.COMPLETED, over.status.message
    (upgrade,) = (await pool.upgrades(plan)).values()
    (step,) = [step for step in upgrade.status.steps if step.name is NodePhase.UPGRADING]
    return str(step.result)


async def test_a_process_that_holds_the_driver_is_ended_by_one_reboot_into_the_same_kernel(pool: VirtualPool) -> None:
    machine = pool.machines[NODE]
    before = await waiting.in_thread(machine.state)
    await stages.apply_stack(pool.kube, pool.made.stack(DRIVERS[0], KUBELET, "1"))
    await pool.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == 1, seconds=600)
    hold = f"setsid sleep 3000 <{RUN}/dev/sim-gpu0 >/dev/null 2>&1 & echo $!"
    pid = machine.enter("sh", "-c", hold).text.strip()
    why = await upgrading(pool, await pool.apply_stack(stack(pool, DRIVERS[1], before.kernel)))
    assert why == (
        f"rebooted into kernel {before.kernel}; driver not unloaded before the reboot: sim 1.0.0 is in use: "
        f"pid {pid} (sleep)"
    )
    after = await waiting.in_thread(machine.wait_ready)
    assert (after.kernel, after.boot_id != before.boot_id) == (before.kernel, True)
    assert '"version": "2.0.0"' in machine.enter("cat", f"{RUN}/loaded.json").text.replace('":"', '": "')
    await pool.nothing_left()
