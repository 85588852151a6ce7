"""Jobs on MIG partitions, which are resources of their own: whole rollouts in virtual time."""

import pytest

from upgrader.api import names
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.placing import PARTITION, trainer_spec
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Two nodes, each with eight GPUs in seven parts."""
    made = Rig()
    made.fleet.partitions = 7
    return made


async def training(rig: Rig, *, method: str = "file") -> str:
    """A gang of two that trains on partitions of two nodes; the next revision."""
    for number in range(2):
        rig.fleet.add_node(f"gpu-{number}")
    rig.put_image("1.0")
    rig.put_image("2.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.add_job("gang", members=2, method=method, template=trainer_spec(56, PARTITION))
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig.apply_stack(rig.make_spec("2.0"))


async def test_a_gang_on_partitions_is_asked_before_its_driver_goes(rig: Rig) -> None:
    revision = await training(rig)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": "100%"})
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.COMPLETED)
    (request,) = rig.requests()
    assert (request.status.phase, len(request.spec.members)) == (RequestPhase.RESTORED, 2)
    trainer = rig.fleet.trainers["gang"]
    assert (trainer.stops, trainer.lost) == (2, 0)  # pods
    assert rig.nodes_on(revision) == 2
    assert [one.status.found.gpus for one in rig.upgrades("up")] == [56, 56]


async def test_nothing_is_switched_off_under_a_pod_on_partitions_that_nobody_can_ask(rig: Rig) -> None:
    revision = await training(rig, method="")
    rig.apply_plan("up", revision, strategy={"maxUnavailable": "100%"})
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    for _ in range(30):
        await rig.run_second()
    assert (rig.upgrades("up"), rig.fleet.trainers["gang"].stops) == ([], 0)
    assert {node["metadata"]["labels"][names.LABEL_OPERANDS] for node in rig.nodes()} == {"on"}


async def test_a_pod_on_partitions_that_is_bound_while_its_node_is_closed_lets_the_upgrade_go(rig: Rig) -> None:
    revision = await training(rig)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": "100%"})
    await rig.run_until(lambda: any(one.status.phase is NodePhase.TAINTING for one in rig.upgrades("up")))
    rig.fleet.add_bare_pod("late", node="gpu-0", gpus=1, resource=PARTITION)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED)
    assert {one.status.reason for one in rig.upgrades("up")} <= {"NewGpuPod", "SiblingFailed"}
    assert rig.fleet.trainers["gang"].stops == 0
