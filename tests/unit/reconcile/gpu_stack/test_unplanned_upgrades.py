"""What a stack does by itself, in virtual time: it tries again, and takes back when it is deleted."""

import pytest

from tests.support.pools import (
    full_disk,
    in_phase,
    installed,
    invalid,
    labels_of,
    pool,
    seen,
    well,
)
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES, NODES, PODS
from upgrader.core.model.phases import NodePhase, PlanPhase, UpgradeReason, is_final
from upgrader_dev.simulated.cluster.ports import ProcessKilled
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

NEXT = "6.1.0-50-amd64"


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ------------------------------------------------------------------------------- tried again


async def test_an_install_that_failed_is_tried_again_and_seen_meanwhile(rig: Rig) -> None:
    revision = await pool(rig)
    before = seen(rig)
    rig.fleet.pod_results = full_disk
    rig.fleet.add_node("gpu-1")
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    await rig.run_second()
    told = (
        "the driver could not be installed on 1 node(s). gpu-1: Install NotPrepared, attempt 1: the disk is full "
        "(retried 15 min after its end)"
    )
    assert installed(rig) == ("False", "NotPrepared", told)
    await rig.run_until(lambda: in_phase(rig, NodePhase.PREPARING), 1000, stride=10)
    assert installed(rig) == ("False", "NotPrepared", told)
    await rig.run_until(lambda: ("gpu-1", "Install", 3, "Failed", "NotPrepared") in seen(rig), 3000, stride=10)
    await rig.run_second()
    assert seen(rig) == [*before, ("gpu-1", "Install", 3, "Failed", "NotPrepared")]
    rig.fleet.pod_results = well
    await rig.run_until(lambda: rig.nodes_on(revision) == 2, 1200, stride=10)
    await rig.settle()
    await rig.run_second()
    assert seen(rig) == [*before, ("gpu-1", "Install", 4, "Succeeded", "")]
    assert installed(rig)[:2] == ("True", "EveryNode")
    rig.assert_nothing_left()


@pytest.mark.parametrize("write", [1, 2, 3], ids=["driver", "plugin", "upgrade"])
async def test_an_attempt_is_made_once_though_the_controller_dies_while_it_orders(rig: Rig, write: int) -> None:
    rig.fleet.pod_results = full_disk
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    rig.cluster.clock.advance(900)
    rig.cluster.fail_at(write, ProcessKilled(), acted=True)
    with pytest.raises(ProcessKilled):
        await rig.run_second()
    rig.restart()
    for _ in range(2):
        await rig.run_second()
    assert [one[2:4] for one in seen(rig) if one[3] != "Failed"] == [(2, "Preparing")]


async def test_an_install_that_is_ordered_anew_is_not_judged_by_the_pod_of_the_one_before(rig: Rig) -> None:
    rig.fleet.pod_results = full_disk
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    rig.fleet.pod_results = well
    name = rig.upgrades()[0].metadata.name
    (prepare,) = [pod for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"]["name"].startswith("prepare")]
    rig.cluster.store.remove(NODE_UPGRADES, name)
    rig.cluster.store.put(PODS, prepare)  # the garbage collector has not come yet
    await rig.run_until(lambda: in_phase(rig, NodePhase.SUCCEEDED))
    assert [one.metadata.name for one in rig.upgrades()] == [name]


async def test_an_install_whose_way_back_went_well_is_tried_again_from_no_driver(rig: Rig) -> None:
    rig.fleet.pod_results = invalid
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    await rig.run_second()
    assert labels_of(rig, "gpu-0") == {names.LABEL_DRIVER: "none", names.LABEL_OPERANDS: "off"}
    assert installed(rig)[:2] == ("False", "NotValid")
    rig.assert_nothing_left()
    rig.fleet.pod_results = well
    await rig.run_until(lambda: rig.nodes_on(revision) == 1, 1200, stride=10)


async def test_a_plan_is_not_complete_while_a_node_waits_for_its_driver(rig: Rig) -> None:
    revision = await pool(rig)
    rig.fleet.pod_results = full_disk
    rig.fleet.add_node("gpu-1")
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.RUNNING)
    await rig.run_second()
    assert rig.plan_now("up").status.message == "1 node(s) are installed by the stack, see its condition Installed"
    rig.fleet.pod_results = well
    await rig.run_until(lambda: rig.is_over("up"), 1200, stride=10)
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)


async def test_a_bring_back_that_failed_is_tried_again_on_the_same_boot(rig: Rig) -> None:
    revision = await pool(rig)
    rig.put_image("1.0", kernel=NEXT)
    rig.fleet.pod_results = full_disk
    rig.cluster.store.change(NODES, "gpu-0", {"status": {"nodeInfo": {"kernelVersion": NEXT, "bootID": "boot-2"}}})
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    await rig.run_second()
    assert installed(rig)[:2] == ("False", "NotPrepared")
    rig.fleet.pod_results = well
    await rig.run_until(lambda: ("gpu-0", "Repair", 2, "Succeeded", "") in seen(rig), 1200, stride=10)
    assert rig.nodes_on(revision) == 1
    rig.assert_nothing_left()


# ------------------------------------------------------------------------------- a stack that is deleted


@pytest.mark.parametrize("phase", [one for one in NodePhase if one not in {"Succeeded", "Failed", "NodeDeleted"}])
async def test_a_stack_that_is_deleted_takes_its_installs_back_or_ends_them(rig: Rig, phase: NodePhase) -> None:
    rig.steps_at_once = 1  # seen in every phase
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, phase))
    rig.cluster.store.mark_deleted(GPU_STACKS, STACK)
    await rig.run_until(lambda: all(is_final(one.status.phase) for one in rig.upgrades()))
    early = phase in {"Pending", "Preparing", "Prepared", "Tainting", "Draining"}
    whole = {
        names.LABEL_DRIVER: rig.upgrades()[0].spec.target.driver_key,
        names.LABEL_DEVICE_PLUGIN: rig.upgrades()[0].spec.target.plugin_key,
        names.LABEL_OPERANDS: "on",
        names.LABEL_REVISION: revision,
    }
    assert labels_of(rig, "gpu-0") == ({} if early else whole)
    assert seen(rig)[0][3:] == (("Failed", "Aborted") if early else ("Succeeded", ""))
    rig.assert_nothing_left()


async def test_a_bring_back_of_a_stack_that_is_deleted_is_taken_back(rig: Rig) -> None:
    rig.steps_at_once = 1  # seen in every phase
    await pool(rig)
    rig.put_image("1.0", kernel=NEXT)
    rig.cluster.store.change(NODES, "gpu-0", {"status": {"nodeInfo": {"kernelVersion": NEXT, "bootID": "boot-2"}}})
    await rig.run_until(lambda: in_phase(rig, NodePhase.PREPARED))
    rig.cluster.store.mark_deleted(GPU_STACKS, STACK)
    await rig.run_until(lambda: all(is_final(one.status.phase) for one in rig.upgrades()))
    (back,) = [one for one in rig.upgrades() if one.spec.reason is UpgradeReason.REPAIR]
    assert (back.status.reason, back.status.message) == ("Aborted", "released")
    rig.assert_nothing_left()


async def test_upgrades_of_a_stack_that_was_removed_by_force_end_all_the_same(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.UPGRADING))
    rig.cluster.store.remove(GPU_STACKS, STACK)
    await rig.run_until(lambda: in_phase(rig, NodePhase.SUCCEEDED))
    assert rig.nodes_on(revision) == 1
    rig.assert_nothing_left()


async def test_a_plan_whose_stack_is_being_deleted_aborts(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    rig.fleet.add_node("gpu-9")
    await rig.run_until(lambda: in_phase(rig, NodePhase.PREPARING, "up") and in_phase(rig, NodePhase.PREPARING))
    rig.cluster.store.mark_deleted(GPU_STACKS, STACK)
    await rig.run_second()
    assert rig.plan_now("up").status.phase is PlanPhase.ABORTING
    await rig.run_until(lambda: rig.is_over("up") and all(is_final(one.status.phase) for one in rig.upgrades()))
    rig.assert_nothing_left()


async def test_a_deleted_upgrade_with_our_finalizer_goes_when_it_has_ended(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.UPGRADING))
    name = rig.upgrades()[0].metadata.name
    rig.cluster.store.change(NODE_UPGRADES, name, {"metadata": {"finalizers": [names.FINALIZER]}})
    rig.cluster.store.mark_deleted(NODE_UPGRADES, name)
    await rig.run_until(lambda: rig.upgrades() == [])
    assert rig.nodes_on(revision) == 1
    rig.assert_nothing_left()
