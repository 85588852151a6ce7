"""A group is upgraded whole or not at all, and only as large as it was when its batch was started."""

import msgspec

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core.errors import UnreachableError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.rig import Rig

OTHER_KERNEL = "6.1.0-48-amd64"
DAY = {"timeoutSeconds": 30, "retrySeconds": 86400}


async def two_kernels() -> Rig:
    """A gang on two nodes, gpu-0 and gpu-1, of two kernels."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.fleet.add_node("gpu-1", kernel=OTHER_KERNEL)
    for version in ("1.0", "2.0"):
        rig.put_image(version)
        rig.put_image(version, OTHER_KERNEL)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.add_job("gang", members=2)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 5)
    return rig


def refuses_upgrades_of(rig: Rig, node: str) -> None:
    def away(write) -> None:
        if write.kind == "NodeUpgrade" and write.verb == "create" and node in write.name:
            raise UnreachableError("the API server answered 503")

    rig.cluster.before_write = away


async def test_a_group_one_of_whose_nodes_has_no_upgrade_is_released_before_its_gang_is_asked() -> None:
    rig = await two_kernels()
    refuses_upgrades_of(rig, "gpu-1")
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0", plugin="2")), checkpoint=DAY)
    await rig.run_until(lambda: bool(rig.upgrades("up")))
    rig.cluster.store.remove(DRIVER_IMAGES, f"sim-2.0-{OTHER_KERNEL}")  # and now it can be made no more
    rig.cluster.before_write = None
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 4000, stride=5)
    (upgrade,) = rig.upgrades("up")
    assert (upgrade.spec.node.name, upgrade.status.phase, upgrade.status.reason) == (
        "gpu-0",
        NodePhase.FAILED,
        "NotAcknowledged",
    )
    assert upgrade.status.message.startswith("Node gpu-1 of the upgrade group has no upgrade")
    assert (rig.requests(), rig.fleet.trainers["gang"].stops) == ([], 0)
    rig.assert_nothing_left()


async def test_a_node_for_which_no_upgrade_can_be_made_keeps_no_other_group_waiting() -> None:
    rig = Rig()
    await pool(rig, nodes=2, images=("1.0", "2.0"))
    revision = rig.apply_stack(rig.make_spec("2.0", plugin="2"))
    refuses_upgrades_of(rig, "gpu-0")
    rig.apply_plan("up", revision, checkpoint=DAY)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    (told,) = rig.plan_now("up").status.conditions
    assert (told.type, told.status) == ("StepFailed", "True")
    assert "upgrade of node gpu-0: the API server answered 503" in told.message
    rig.cluster.before_write = None
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.nodes_on(revision) == 2


async def elastic() -> Rig:
    """A gang of one member in a pool of four nodes, three of which are skipped; a batch with a budget of its 8 GPUs."""
    rig = Rig()
    await pool(rig, nodes=4, images=("1.0", "2.0"))
    rig.fleet.add_job("gang", members=1)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 5)
    (node,) = (
        pod["spec"]["nodeName"] for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"]["labels"].get("job")
    )
    for number in range(4):
        if f"gpu-{number}" != node:
            rig.cluster.store.change(NODES, f"gpu-{number}", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    revision = rig.apply_stack(rig.make_spec("2.0", plugin="2"))
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 8}, checkpoint=DAY)
    return rig


async def test_a_gang_that_grew_since_its_batch_was_started_is_not_asked() -> None:
    rig = await elastic()
    await rig.run_until(lambda: bool(rig.upgrades("up")))
    rig.cluster.store.change(JOBS, "gang", {"spec": {"parallelism": 4, "completions": 4}}, "default")
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 4000, stride=5)
    (upgrade,) = rig.upgrades("up")
    assert upgrade.status.reason == "NotAcknowledged"
    assert upgrade.status.message == (
        "default/Job/gang has 32 GPUs, and had 8 when the batch started; a later batch counts it again."
    )
    assert (rig.requests(), rig.fleet.trainers["gang"].stops) == ([], 0)
    assert rig.plan_now("up").status.phase is PlanPhase.RUNNING  # nothing failed
    rig.assert_nothing_left()


async def test_a_gang_is_measured_once_more_right_before_its_stop() -> None:
    """Its owner counts no members, and a request of before was made for all of them: only the batch says less."""
    rig = await elastic()
    rig.steps_at_once = 1  # seen in every phase
    await rig.run_until(lambda: any(one.status.phase is RequestPhase.STOPPING for one in rig.requests()))
    batches = msgspec.to_builtins(rig.plan_now("up").status.batches)
    batches[0]["groups"][0]["shares"]["default/Job/gang"]["gpus"] = 4
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"status": {"batches": batches}})
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 4000, stride=5)
    assert [(one.status.phase, one.status.reason) for one in rig.requests()] == [
        (RequestPhase.WITHDRAWN, "GroupOutgrown")
    ]
    assert rig.fleet.trainers["gang"].stops == 0
    rig.assert_nothing_left()
