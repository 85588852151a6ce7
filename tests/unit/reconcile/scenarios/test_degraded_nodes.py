"""Nodes that have less after their reboot than before, in virtual time: by their Job, and in allocatable resources."""

import pytest

from tests.support.two_kernels import NEXT, NOW, kernels, reboot_into, rig_with_gang
from upgrader.api.resources import NODES
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.stack.node_pods.upgrade_orders import upgrade_order
from upgrader_dev.simulated.cluster.rig import Rig

REBOOT = reboot_into(NEXT)


@pytest.fixture
async def rig() -> Rig:
    return await rig_with_gang(nodes=2)


DEGRADED = "rebooted; 300 s after that the node has less than before: network link ens1: 100 Gb/s → not up"


def degrade(rig: Rig, *, also_back: bool = False) -> None:
    """The upgrade Job of gpu-1 reports a loss, and with `also_back` that of its revert."""

    def pod_results(component, pod):
        if component != "upgrade" or pod["spec"]["nodeName"] != "gpu-1" or ("-revert" in str(pod) and not also_back):
            return None
        return OrderResult(reason=Reason.DEGRADED, message=DEGRADED)

    rig.fleet.pod_results = pod_results


async def test_a_node_with_less_than_before_is_degraded_and_reverts_with_its_sibling(rig: Rig) -> None:
    degrade(rig)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == ["Restored"])
    ended = {one.spec.node.name: one.status for one in rig.upgrades("up")}
    assert {name: one.reason for name, one in ended.items()} == {"gpu-0": "SiblingReverted", "gpu-1": "NodeDegraded"}
    assert ended["gpu-1"].message == f"released. Why it failed: {DEGRADED}"
    assert (kernels(rig), rig.fleet.trainers["gang"].lost) == ({NOW}, 0)
    rig.assert_nothing_left()


async def test_a_node_that_has_less_also_after_its_revert_keeps_its_taint(rig: Rig) -> None:
    degrade(rig, also_back=True)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: any(one.status.phase is NodePhase.FAILED for one in rig.upgrades("up")))
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED})
    ended = {one.spec.node.name: one.status for one in rig.upgrades("up")}
    assert {name: one.reason for name, one in ended.items()} == {"gpu-0": "SiblingReverted", "gpu-1": "RevertFailed"}
    assert ended["gpu-1"].message.startswith(f"{DEGRADED}; the revert failed: operands stay off and the taint stays;")


@pytest.mark.parametrize("on_loss", ["Fail", "Report"])
async def test_the_order_has_the_limit_and_the_way_of_the_stack_as_they_were_at_the_creation(
    rig: Rig, on_loss: str
) -> None:
    way = REBOOT | {"onLoss": on_loss, "settleSeconds": 900}
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": way}))
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.UPGRADING})
    rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT})
    await rig.run_until(lambda: len(rig.fleet.reboots) == 2)
    orders = [
        upgrade_order(upgrade, reverting=back, adopted=False)
        for upgrade in rig.upgrades("up")
        for back in (False, True)
    ]
    assert {(order.reboot.settle_timeout, order.reboot.report_losses) for order in orders} == {
        (900, on_loss == "Report")
    }


def offer(rig: Rig, count: str) -> None:
    """The number of network functions that gpu-1 offers."""
    rig.cluster.store.change(NODES, "gpu-1", {"status": {"allocatable": {"rdma/hca": count}}})


def upgrade_of(rig: Rig, name: str) -> NodeUpgrade:
    return next(one for one in rig.upgrades("up") if one.spec.node.name == name)


async def lose_resource(rig: Rig, **reboot: object) -> None:
    """Start a plan; while gpu-1 is upgraded it loses network functions, until the phase Loading waits for them."""
    offer(rig, "8")
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT | reboot}))
    await rig.run_until(lambda: len(rig.fleet.reboots) == 2)
    offer(rig, "2")
    await rig.run_until(lambda: upgrade_of(rig, "gpu-1").status.phase is NodePhase.LOADING)
    assert upgrade_of(rig, "gpu-1").status.found.allocatable == {"cpu": "64", "rdma/hca": "8"}
    await rig.run_until(lambda: LOST in upgrade_of(rig, "gpu-1").status.message, 120)


LOST = "less than before the reboot is allocatable: rdma/hca: 8 → 2"


async def test_a_resource_that_returns_in_time_is_awaited(rig: Rig) -> None:
    await lose_resource(rig)
    offer(rig, "8")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    rig.assert_nothing_left()


async def test_a_resource_that_does_not_return_fails_the_upgrade(rig: Rig) -> None:
    await lose_resource(rig)
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED}, 900)
    ended = {one.spec.node.name: one.status.reason for one in rig.upgrades("up")}
    assert ended == {"gpu-0": "SiblingReverted", "gpu-1": "NodeDegraded"}
    assert upgrade_of(rig, "gpu-1").status.message == (
        f"released. Why it failed: {LOST}; repair the node, or set spec.reboot.onLoss of the stack to Report"
    )
    assert kernels(rig) == {NOW}
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == ["Restored"])
    rig.assert_nothing_left()


async def test_with_report_the_step_has_a_remark(rig: Rig) -> None:
    await lose_resource(rig, onLoss="Report")
    await rig.run_until(lambda: rig.is_over("up"), 900)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    results = {step.name: step.result for step in upgrade_of(rig, "gpu-1").status.steps}
    assert results[NodePhase.LOADING] == f"8 GPUs allocatable; {LOST}"


async def test_an_upgrade_without_a_reboot_compares_nothing(rig: Rig) -> None:
    offer(rig, "8")
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0")))
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.UPGRADING})
    offer(rig, "2")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert upgrade_of(rig, "gpu-1").status.found.allocatable == {}
