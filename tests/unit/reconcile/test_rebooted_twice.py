"""A node that reboots once more, into the kernel that it had or a third one, while it is brought back on another."""

import pytest

from tests.support.rebooting import BACK, NODE, THIRD, Reboot, Twice
from upgrader.core.phases import NodePhase


@pytest.mark.parametrize("phase", [one for one in NodePhase if one not in {"Pending", "Failed", "Gone"}])
async def test_it_is_in_service_on_its_first_kernel_soon(phase: NodePhase) -> None:
    """No deadline has to pass for that, in whichever phase the visit was."""
    rig = Twice()
    await rig.begin()
    await rig.until(lambda: any(one.status.phase is phase for one in rig.back()))
    rig.machines.reboot(NODE, BACK)
    await rig.comes_to_rest(seconds=60)
    first = rig.back()[0].status
    if phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED}:
        assert [one.status.reason for one in rig.back()] == ["", ""]
    else:
        why = "the node runs kernel 6.1.0-47-amd64, the visit was planned for 6.1.0-50-amd64"
        assert (len(rig.back()), first.reason) == (1, "KernelChanged")
        assert first.message == f"given back. Why it failed: {why}"


@pytest.mark.parametrize("phase", [one for one in NodePhase if one not in {"Pending", "Failed", "Gone"}])
async def test_on_a_third_kernel_it_is_brought_back_on_that_one(phase: NodePhase) -> None:
    rig = Twice()
    await rig.begin()
    await rig.until(lambda: any(one.status.phase is phase for one in rig.back()))
    rig.machines.reboot(NODE, Reboot(kernel=THIRD, boot="boot-3"))
    await rig.comes_to_rest(seconds=90)
    well = [one for one in rig.visits() if one.status.phase is NodePhase.SUCCEEDED and one.spec.target.kernel == THIRD]
    assert [one.spec.node.name for one in well] == [NODE]  # an Install, where its driver was switched off by then
