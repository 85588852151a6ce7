"""Kernels upgraded with the driver, in virtual time: one acknowledgement, one upgrade, one reboot."""

import pytest

from tests.support.drifting import reboots
from tests.support.two_kernels import NEXT, NOW, kernels, reboot_into, rig_with_gang
from upgrader.api import names
from upgrader.api.resources import NODES, PODS
from upgrader.core.model.phases import NodePhase, PlanPhase, UpgradeReason
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.fleet import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig

THIRD = "6.1.0-53-amd64"
REBOOT = reboot_into(NEXT)


def drift(rig: Rig) -> dict[str, int]:
    return {one.reason: one.nodes for one in rig.stack_now().status.drift}


@pytest.fixture
async def rig() -> Rig:
    return await rig_with_gang(nodes=2)


async def test_a_kernel_and_a_driver_are_upgraded_in_one_upgrade_after_one_acknowledgement(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("2.0", kubelet="1.35.4") | {"reboot": REBOOT})
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert sorted(rig.fleet.reboots) == [("gpu-0", NEXT), ("gpu-1", NEXT)]
    assert (kernels(rig), rig.nodes_on(revision), len(rig.upgrades("up"))) == ({NEXT}, 2, 2)
    assert (rig.fleet.trainers["gang"].lost, rig.fleet.trainers["gang"].stops) == (0, 2)
    assert {one.spec.target.kernel for one in rig.upgrades("up")} == {NEXT}
    assert drift(rig) == {}
    assert [one for one in rig.upgrades() if one.spec.reason is UpgradeReason.REPAIR] == []
    rig.assert_nothing_left()


async def test_a_kernel_alone_is_a_reason_for_a_node_upgrade(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("1.0") | {"reboot": REBOOT})
    await rig.run_until(lambda: drift(rig) == {"Reboot": 2})
    assert rig.fleet.reboots == []
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (kernels(rig), rig.fleet.trainers["gang"].stops) == ({NEXT}, 2)


async def test_without_an_image_for_the_kernel_to_come_nobody_is_asked(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT | {"kernel": "6.1.0-99-amd64"}})
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    assert {blocker.reason for blocker in rig.plan_now("up").status.blockers} == {"NoDriverImage"}
    assert "kernel 6.1.0-99-amd64 of node gpu-0" in rig.plan_now("up").status.blockers[0].message
    assert (rig.upgrades("up"), rig.requests(), rig.fleet.reboots) == ([], [], [])


async def test_a_node_object_that_shows_the_old_boot_is_believed_in_nothing_until_it_shows_the_new_one(
    rig: Rig,
) -> None:
    rig.fleet.shows_boot_after = 60
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: len(rig.fleet.reboots) == 2)
    for _ in range(40):
        await rig.run_second()
        assert {one.status.phase for one in rig.upgrades("up")} <= {NodePhase.UPGRADING, NodePhase.LOADING}
        assert {node["metadata"]["labels"][names.LABEL_DRIVER] for node in rig.nodes()} == {"none"}
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_a_node_that_comes_up_with_another_kernel_goes_back_and_its_sibling_with_it(rig: Rig) -> None:
    def pod_results(component, pod):
        if component != "upgrade" or "-revert" in str(pod) or pod["spec"]["nodeName"] != "gpu-1":
            return None
        return OrderResult(reason=Reason.KERNEL_MISMATCH, message="the node came up with another kernel")

    rig.fleet.pod_results = pod_results
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == ["Restored"])
    assert rig.fleet.reboots == [("gpu-0", NEXT), ("gpu-0", NOW)]
    assert (kernels(rig), {one.status.phase for one in rig.upgrades("up")}) == ({NOW}, {NodePhase.FAILED})
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


@pytest.mark.parametrize("phase", [NodePhase.LOADING, NodePhase.VALIDATING])
async def test_a_node_that_reboots_again_into_a_third_kernel_goes_back_without_waiting_for_a_deadline(
    rig: Rig, phase: NodePhase
) -> None:
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))

    def there() -> bool:
        return any(one.spec.node.name == "gpu-1" and one.status.phase is phase for one in rig.upgrades("up"))

    await rig.run_until(lambda: there() and kernels(rig) == {NEXT})
    reboots(rig, "gpu-1", boot="boot-9", kernel=THIRD)
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED}, 90)
    ended = {one.spec.node.name: one.status for one in rig.upgrades("up")}
    assert {name: one.reason for name, one in ended.items()} == {"gpu-0": "SiblingReverted", "gpu-1": "KernelChanged"}
    why = f"released. Why it failed: the node runs kernel {THIRD}, the upgrade was planned for {NEXT}"
    assert (ended["gpu-1"].message, kernels(rig)) == (why, {NOW})
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == ["Restored"])
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_other_pods_are_evicted_before_a_reboot_and_those_of_the_node_stay(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    rig.cluster.store.put(
        PODS,
        {
            "metadata": {
                "name": "static",
                "namespace": "kube-system",
                "ownerReferences": [{"kind": "Node", "name": "gpu-0", "uid": "n", "controller": True}],
            },
            "spec": {"nodeName": "gpu-0", "containers": [{"name": "a"}]},
            "status": {"phase": "Running"},
        },
    )
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: rig.is_over("up"))
    left = {pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS)}
    assert ("web" in left, "static" in left) == (False, True)


async def test_without_a_reboot_pods_without_gpus_stay(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0")))
    await rig.run_until(lambda: rig.is_over("up"))
    assert "web" in {pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS)}


async def test_a_new_node_is_installed_for_the_kernel_that_it_runs_and_drifts(rig: Rig) -> None:
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: rig.is_over("up"))
    rig.fleet.add_node("gpu-9", kernel=NOW)
    await rig.run_until(lambda: rig.nodes_on(rig.stack_now().status.update_revision or "?") == 3)
    await rig.run_until(lambda: drift(rig) == {"Reboot": 1})
    (upgrade,) = [one for one in rig.upgrades() if one.spec.node.name == "gpu-9"]
    assert (upgrade.spec.reboot, upgrade.spec.target.kernel) == (None, NOW)
    node = rig.cluster.store.find(NODES, "gpu-9")
    assert (node["status"]["nodeInfo"]["kernelVersion"], node["status"]["allocatable"][RESOURCE]) == (NOW, "8")


async def test_a_node_that_a_person_rebooted_into_the_other_kernel_is_brought_back_there(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0") | {"reboot": REBOOT})
    boot = {"kernelVersion": NEXT, "bootID": "by-hand"}
    rig.cluster.store.change(NODES, "gpu-0", {"status": {"nodeInfo": boot}})
    await rig.run_until(lambda: any(one.spec.reason is UpgradeReason.REPAIR for one in rig.upgrades()))
    (upgrade,) = [one for one in rig.upgrades() if one.spec.reason is UpgradeReason.REPAIR]
    assert (upgrade.spec.reboot, upgrade.spec.target.kernel, upgrade.spec.target.driver_version) == (None, NEXT, "1.0")
    assert rig.fleet.reboots == []
