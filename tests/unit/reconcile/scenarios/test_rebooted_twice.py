"""A node that reboots once more, into the kernel that it had or a third one, while it is repaired on another."""

import pytest

from tests.support.drifting import KERNEL, NEXT
from tests.support.pools import labels_of
from tests.support.rebooting import BACK, NODE, THIRD, Reboot, Twice
from upgrader.api import names
from upgrader.api.resources import NODES
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.phases import NodePhase, PlanPhase, UpgradeReason

NEVER = {"days": ["Sat"], "start": "03:00", "end": "03:01"}


@pytest.mark.parametrize("phase", [one for one in NodePhase if one not in {"Pending", "Failed", "NodeDeleted"}])
async def test_it_is_in_service_on_its_first_kernel_soon(phase: NodePhase) -> None:
    """No deadline has to pass for that, in whichever phase the upgrade was."""
    rig = Twice()
    rig.steps_at_once = 1  # seen in every phase
    await rig.begin()
    await rig.run_until(lambda: any(one.status.phase is phase for one in rig.back()))
    rig.machines.reboot(NODE, BACK)
    await rig.comes_to_rest(seconds=60)
    first = rig.back()[0].status
    if phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED}:
        assert [one.status.reason for one in rig.back()] == ["", ""]
    else:
        why = "the node runs kernel 6.1.0-47-amd64, the upgrade was planned for 6.1.0-50-amd64"
        assert (len(rig.back()), first.reason) == (1, "KernelChanged")
        assert first.message == f"released. Why it failed: {why}"


@pytest.mark.parametrize("phase", [one for one in NodePhase if one not in {"Pending", "Failed", "NodeDeleted"}])
async def test_on_a_third_kernel_it_is_brought_back_on_that_one(phase: NodePhase) -> None:
    rig = Twice()
    rig.steps_at_once = 1  # seen in every phase
    await rig.begin()
    await rig.run_until(lambda: any(one.status.phase is phase for one in rig.back()))
    rig.machines.reboot(NODE, Reboot(kernel=THIRD, boot="boot-3"))
    await rig.comes_to_rest(seconds=90)
    well = [
        one for one in rig.upgrades() if one.status.phase is NodePhase.SUCCEEDED and one.spec.target.kernel == THIRD
    ]
    assert [one.spec.node.name for one in well] == [NODE]


@pytest.mark.parametrize("phase", [NodePhase.LOADING, NodePhase.VALIDATING])
async def test_it_goes_back_to_what_it_had_although_a_plan_to_something_newer_is_under_way(phase: NodePhase) -> None:
    """That plan has batches, canaries and a budget; a node that reboots passes none of them by."""
    rig = Twice()
    await rig.begin()
    had = rig.stack_now().status.current_revision
    for kernel in (KERNEL, NEXT, THIRD):
        rig.put_image("2.0", kernel=kernel)
    rig.apply_plan("later", rig.apply_stack(rig.make_spec("2.0")), strategy={"windows": [NEVER]})
    await rig.run_until(lambda: any(one.status.phase is phase for one in rig.back()))
    assert rig.plan_now("later").status.phase is PlanPhase.RUNNING
    rig.machines.reboot(NODE, Reboot(kernel=THIRD, boot="boot-3"))
    await rig.run_until(lambda: len(rig.back()) == 2 and rig.back()[1].status.phase is NodePhase.SUCCEEDED, 90)
    second = rig.back()[1].spec
    assert (second.target.revision, second.target.kernel) == (had, THIRD)
    assert [one.spec.reason for one in rig.upgrades() if one.spec.node.name == NODE].count(UpgradeReason.INSTALL) == 1
    node = rig.cluster.store.find(NODES, NODE)["metadata"]
    assert (node["labels"][names.LABEL_REVISION], names.ANNOTATION_REMOVED_DRIVER in node["annotations"]) == (
        had,
        False,
    )


SEEN_ON = [NodePhase.UPGRADING, NodePhase.LOADING, NodePhase.VALIDATING]


@pytest.mark.parametrize("node", [NODE, "gpu-0"])
@pytest.mark.parametrize("phase", SEEN_ON)
async def test_in_a_plan_s_upgrade_it_goes_back_to_what_it_had_without_waiting_for_a_deadline(
    phase: NodePhase, node: str
) -> None:
    rig = Twice()
    await rig.train()
    had = rig.stack_now().status.current_revision
    rig.newer(KERNEL, THIRD)

    def rolled() -> NodeUpgrade | None:
        return next((one for one in rig.upgrades("newer") if one.spec.node.name == node), None)

    await rig.run_until(lambda: (one := rolled()) is not None and one.status.phase is phase)
    rig.machines.reboot(node, Reboot(kernel=THIRD, boot="boot-3"))
    await rig.run_until(lambda: [one.status.phase for one in rig.back()] == [NodePhase.SUCCEEDED], 180)
    failed, (back,) = rolled(), rig.back()
    assert failed is not None
    assert (failed.status.phase, failed.status.reason) == (NodePhase.FAILED, "KernelChanged")
    goal = back.spec.target
    assert (back.spec.node.name, goal.revision, goal.kernel, goal.driver_version) == (node, had, THIRD, "1.0")
    await rig.run_until(lambda: rig.plan_now("newer").status.phase is PlanPhase.PAUSED, 60)
    gang = rig.fleet.trainers["gang"]
    step = gang.step
    await rig.run_until(lambda: gang.step > step, 60)
    assert rig.serves(node)
    if node != NODE:
        (sibling,) = (one.status for one in rig.upgrades("newer") if one.spec.node.name == "gpu-1")
        assert (sibling.phase, sibling.reason) == (NodePhase.FAILED, "SiblingReverted")
        assert labels_of(rig, "gpu-1")[names.LABEL_REVISION] == had
    assert (gang.stops, gang.lost) == (0 if node == NODE else 2, 0)  # once for each of its two pods
