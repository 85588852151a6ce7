"""A node upgrade that waits for another one of its group: no deadline that has passed is left on it."""

from upgrader.core import timing
from upgrader.core.model.phases import NodePhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training


async def test_its_deadline_becomes_that_of_the_upgrade_it_waits_for():
    rig = Rig()
    revision = await start_training(rig, nodes=2, members=2)
    rig.fleet.hangs = lambda pod: pod["spec"]["nodeName"] == "gpu-1"
    rig.apply_plan("up", revision)

    def upgrades():
        return {upgrade.spec.node.name: upgrade.status for upgrade in rig.upgrades("up")}

    await rig.run_until(lambda: bool(upgrades()) and upgrades()["gpu-0"].phase is NodePhase.VALIDATING)
    first = upgrades()["gpu-0"].deadline
    await rig.run_until(lambda: upgrades()["gpu-0"].deadline != first, 2000)
    waits, hangs = upgrades()["gpu-0"], upgrades()["gpu-1"]
    assert hangs.phase is NodePhase.UPGRADING
    assert (waits.phase, waits.deadline) == (NodePhase.VALIDATING, hangs.deadline)
    assert (waits.steps[-1].name, waits.steps[-1].deadline) == (NodePhase.VALIDATING, hangs.deadline)
    assert timing.parse_time(first) <= rig.context.clock.now() < timing.parse_time(hangs.deadline)
