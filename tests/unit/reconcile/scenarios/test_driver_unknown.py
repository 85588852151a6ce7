"""Nodes whose present driver, or whose revision, nobody knows: doubt is never taken for "nothing was installed"."""

import pytest

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, NODE_UPGRADES, NODES
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.ports import ProcessKilled
from upgrader_dev.simulated.cluster.rig import Rig, start_training

OLD = "sim-1.0-6.1.0-47-amd64"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def driver(rig: Rig) -> str:
    label: str = rig.nodes()[0]["metadata"]["labels"][names.LABEL_DRIVER]
    return label


def fails(rig: Rig) -> None:
    """The new driver is not valid; the former is."""

    def pod_results(component: str, pod: dict) -> OrderResult | None:
        new = component == "validate" and pod["metadata"]["name"].startswith("validate-")
        return OrderResult(reason=Reason.DRIVER_MISMATCH, message="2.0 is broken") if new else None

    rig.fleet.pod_results = pod_results


async def test_a_node_of_whose_driver_there_is_no_image_is_blocked_and_its_gang_trains_on(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1)
    key = driver(rig)
    rig.cluster.store.remove(DRIVER_IMAGES, OLD)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    for _ in range(30):
        await rig.run_second()
    blockers = rig.plan_now("up").status.blockers
    assert [one.reason for one in blockers] == ["DriverUnknown"]
    assert f"image {key}, which is the key of no Ready DriverImage" in blockers[0].message
    assert (rig.upgrades("up"), rig.requests(), rig.fleet.trainers["gang"].stops) == ([], [], 0)
    rig.put_image("1.0")
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 1)


async def test_where_it_is_lost_while_a_batch_is_started_the_batch_ends_without_a_node_upgrade(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1)

    create = rig.cluster.create

    async def killed(kind, body):
        if kind is not NODE_UPGRADES:
            return await create(kind, body)
        rig.cluster.create = create
        rig.cluster.store.remove(DRIVER_IMAGES, OLD)
        raise ProcessKilled("between the batch and its upgrades")

    rig.cluster.create = killed
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 30, "retrySeconds": 86400})
    with pytest.raises(ProcessKilled):
        await rig.run_until(lambda: rig.is_over("up"))
    rig.restart()
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 900)
    assert (rig.upgrades("up"), rig.requests(), rig.fleet.trainers["gang"].stops) == ([], [], 0)
    rig.assert_nothing_left()


async def test_a_node_without_a_revision_goes_back_to_the_driver_that_it_had(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1)
    key = driver(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_REVISION: None}}})
    fails(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.FAILED for one in rig.upgrades("up")), 900)
    upgrade = rig.upgrades("up")[0]
    assert (upgrade.status.reason, upgrade.spec.source.driver_key, upgrade.spec.source.revision) == (
        "NotValid",
        key,
        "",
    )
    labels = rig.nodes()[0]["metadata"]["labels"]
    assert (labels[names.LABEL_DRIVER], labels[names.LABEL_OPERANDS]) == (key, "on")
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {"Restored"})
    rig.assert_nothing_left()
