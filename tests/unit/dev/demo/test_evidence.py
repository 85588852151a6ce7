"""What upgrades took, told from the objects of a rollout in virtual time."""

from datetime import timedelta

import msgspec
import pytest

from upgrader.core import timing
from upgrader.core.model.phases import NodePhase
from upgrader_dev.demo import evidence
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_a_node_upgrade_tells_its_phases_and_how_long_its_node_was_closed(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: rig.is_over("up"))

    told = await evidence.read_upgrades(rig.cluster)

    assert [(one.reason, one.phase) for one in told] == [("Install", "Succeeded")] * 2 + [("Rollout", "Succeeded")] * 2
    for one, upgrade in zip(
        told[2:], sorted(rig.upgrades("up"), key=lambda upgrade: upgrade.status.steps[-1].started_at), strict=True
    ):
        assert one.node == upgrade.spec.node.name
        started = {step.name: timing.parse_time(step.started_at) for step in upgrade.status.steps}
        ended = timing.parse_time(upgrade.status.steps[-1].ended_at)
        assert one.closed_seconds == (ended - started["Tainting"]).total_seconds()
        assert timedelta(seconds=sum(one.seconds.values())) == ended - min(started.values())


async def test_a_node_upgrade_that_did_not_close_its_node_tells_so(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    (upgrade,) = rig.upgrades()
    status = msgspec.structs.replace(upgrade.status, steps=upgrade.status.steps[:1], phase=NodePhase.FAILED)

    told = evidence.upgrade_report(msgspec.structs.replace(upgrade, status=status))

    assert (told.phase, told.closed_seconds, list(told.seconds)) == ("Failed", None, ["Preparing"])
