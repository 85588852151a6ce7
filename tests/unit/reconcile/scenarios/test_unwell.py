"""GPUs that are not well before a node upgrade: nobody is stopped, and no driver blamed, for what was there already."""

import pytest

from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training

OFFERS = "Node gpu-0 offers 7 of its 8 GPUs before any upgrade, so its validation would fail"


@pytest.fixture
async def rig() -> Rig:
    """Two nodes on driver 1.0, with a gang of one pod that trains on the first of them."""
    made = Rig()
    made.revision = await start_training(made, members=1, gpus=6)
    (pod,) = [one for one in made.cluster.store.copy_all(PODS) if one["metadata"]["name"].startswith("gang")]
    assert pod["spec"]["nodeName"] == "gpu-0"
    return made


async def wait(rig: Rig, seconds: int = 60) -> None:
    for _ in range(seconds):
        await rig.run_second()


def blockers(rig: Rig, plan: str = "up") -> list[tuple[str, str]]:
    return [(one.subject, one.reason) for one in rig.plan_now(plan).status.blockers]


async def test_a_node_with_one_holds_until_it_is_repaired_and_the_others_are_upgraded(rig: Rig) -> None:
    rig.fleet.unhealthy = {"gpu-0": 1}
    await wait(rig, 2)
    rig.apply_plan("up", rig.revision)
    await rig.run_until(lambda: rig.nodes_on(rig.revision) == 1)
    await wait(rig)
    assert blockers(rig) == [("gpu-0", "GPUsMissing")]
    assert rig.plan_now("up").status.blockers[0].message.startswith(OFFERS)
    assert ([one.spec.node.name for one in rig.upgrades("up")], rig.requests()) == (["gpu-1"], [])
    rig.fleet.unhealthy = {}
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(rig.revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.fleet.trainers["gang"].lost == 0


async def test_one_that_turns_so_after_the_batch_was_started_keeps_its_gang_from_being_asked(rig: Rig) -> None:
    rig.apply_plan("up", rig.revision)
    await rig.run_until(lambda: len(rig.upgrades("up")) == 2)
    rig.fleet.unhealthy = {"gpu-0": 1}
    await rig.run_until(lambda: rig.plan_now("up").status.batches[-1].ended_at is not None)
    (upgrade,) = [one for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"]
    assert (upgrade.status.phase, upgrade.status.reason) == (NodePhase.FAILED, "NotAcknowledged")
    assert upgrade.status.message.startswith(OFFERS)
    assert (rig.requests(), rig.fleet.trainers["gang"].stops, rig.plan_now("up").status.failures) == ([], 0, [])


async def test_a_node_that_was_drained_and_cordoned_is_upgraded_all_the_same(rig: Rig) -> None:
    """The driver that comes mends it."""
    rig.cluster.store.remove(JOBS, "gang", "default")
    for pod in list(rig.cluster.store.copy_all(PODS)):
        if pod["metadata"]["name"].startswith("gang"):
            rig.cluster.store.remove(PODS, pod["metadata"]["name"], "default")
    rig.fleet.unhealthy = {"gpu-0": 1}
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"unschedulable": True}})
    rig.apply_plan("up", rig.revision)

    def mends() -> None:
        if any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"):
            rig.fleet.unhealthy = {}

    rig.others.append(mends)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(rig.revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.cluster.store.find(NODES, "gpu-0")["spec"]["unschedulable"] is True, "a person's, and stays"


async def test_a_rollback_upgrades_what_the_driver_that_it_takes_back_has_broken(rig: Rig) -> None:
    old = rig.nodes()[0]["metadata"]["labels"]["gpu-upgrader.io/revision"]
    rig.apply_plan("up", rig.revision)
    await rig.run_until(lambda: rig.is_over("up"))
    rig.fleet.unhealthy = {"gpu-0": 1, "gpu-1": 1}
    await wait(rig, 5)

    rig.apply_plan("back", old)

    def heals() -> None:
        for one in rig.upgrades("back"):
            if one.status.phase is NodePhase.UPGRADING:
                rig.fleet.unhealthy.pop(one.spec.node.name, None)

    rig.others.append(heals)
    await rig.run_until(lambda: rig.is_over("back"))
    assert (rig.plan_now("back").status.phase, rig.nodes_on(old)) == (PlanPhase.COMPLETED, 2), rig.describe_state()
    assert rig.fleet.trainers["gang"].lost == 0


async def test_one_that_turns_so_in_its_upgrade_sends_the_node_back_and_pauses_the_plan(rig: Rig) -> None:
    """Until the validation has found it nothing is known: what the driver is blamed for began with it."""
    rig.apply_plan("up", rig.revision)
    there = "gpu-0", NodePhase.VALIDATING
    await rig.run_until(lambda: there in {(one.spec.node.name, one.status.phase) for one in rig.upgrades("up")})
    rig.fleet.unhealthy = {"gpu-0": 1}
    await rig.run_until(lambda: any(one.status.reverting for one in rig.upgrades("up")), 2000, stride=5)
    rig.fleet.unhealthy = {}
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    (upgrade,) = [one for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"]
    assert (upgrade.status.phase, upgrade.status.reason) == (NodePhase.FAILED, "ValidatingLate")
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def validating(rig: Rig) -> None:
    """Until the validation pod of gpu-0 is due."""
    there = "gpu-0", NodePhase.LOADING
    await rig.run_until(lambda: there in {(one.spec.node.name, one.status.phase) for one in rig.upgrades("up")})


def validations(rig: Rig) -> int:
    created = (one for one in rig.cluster.writes if (one.verb, one.kind) == ("create", "Pod"))
    return sum(one.name.startswith("validate-gpu-0") for one in created)


async def test_a_kubelet_that_restarts_before_the_validation_refuses_its_pod_until_the_plugin_has_registered(
    rig: Rig,
) -> None:
    """What it refuses says nothing about the devices: the pod is made again, and nothing goes back."""
    rig.apply_plan("up", rig.revision)
    await validating(rig)
    rig.fleet.refuses_devices = {"gpu-0"}
    before = validations(rig)
    await wait(rig, 45)
    (upgrade,) = [one for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"]
    assert (upgrade.status.phase, upgrade.status.reverting) == (NodePhase.VALIDATING, False)
    assert 2 <= validations(rig) - before <= 5, "again, and not without a pause"
    rig.fleet.refuses_devices = set()
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(rig.revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_kubelet_that_never_admits_it_sends_the_node_back_at_the_deadline(rig: Rig) -> None:
    rig.steps_at_once = 1  # seen in every phase
    rig.apply_plan("up", rig.revision)
    await validating(rig)
    rig.fleet.refuses_devices = {"gpu-0"}
    await rig.run_until(lambda: any(one.status.reverting for one in rig.upgrades("up")), 2000, stride=5)
    (upgrade,) = [one for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"]
    turned = next(one for one in upgrade.status.steps if one.name is NodePhase.VALIDATING)
    assert "did not admit the validation pod" in turned.result
    rig.fleet.refuses_devices = set()
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_a_plugin_that_crashes_after_its_registration_in_a_node_upgrade_is_waited_for(rig: Rig) -> None:
    rig.apply_plan("up", rig.revision)
    await validating(rig)
    there = "gpu-0", NodePhase.VALIDATING
    await rig.run_until(lambda: there in {(one.spec.node.name, one.status.phase) for one in rig.upgrades("up")})
    rig.fleet.unhealthy = {"gpu-0": 8}  # the kubelet keeps the capacity, and offers none
    await wait(rig, 30)
    (upgrade,) = [one for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"]
    blocked = next(one for one in upgrade.status.conditions if one.type == "Blocked")
    assert (upgrade.status.phase, blocked.reason) == (NodePhase.VALIDATING, "GPUsMissing")
    rig.fleet.unhealthy = {}
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
