"""Whole rollouts in virtual time. Engine, rendering and rules are real; the cluster is simulated."""

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_new_nodes_are_installed_without_a_plan(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    (upgrade,) = rig.upgrades()
    assert upgrade.status.phase is NodePhase.SUCCEEDED
    labels = rig.nodes()[0]["metadata"]["labels"]
    assert labels[names.LABEL_REVISION] == revision
    assert labels[names.LABEL_OPERANDS] == "on"
    assert rig.nodes()[0]["spec"].get("taints", []) == []


async def test_a_gang_is_stopped_once_and_loses_no_step(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert (rig.fleet.trainers["gang"].lost, rig.fleet.trainers["gang"].stops) == (0, 2)
    assert rig.nodes_on(revision) == 2
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in rig.nodes()} == {"v1.35.4"}
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED]
    rig.assert_nothing_left()


async def test_without_parking_steps_are_lost_or_nothing_is_stopped(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.fleet.trainers["gang"].parks = False
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 60, "retrySeconds": 3600})
    await rig.run_until(
        lambda: [one.status.phase for one in rig.requests()] == [RequestPhase.WITHDRAWN], 2000, stride=20
    )
    assert rig.fleet.trainers["gang"].stops == 0
    assert rig.requests()[0].status.reason == "NotParked"


async def test_a_job_outside_the_pool_is_left_alone(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.fleet.add_node("other", pool="b")
    rig.apply_plan("up", revision)
    before = rig.cluster.store.find(NODES, "other")["metadata"]["labels"]
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.cluster.store.find(NODES, "other")["metadata"]["labels"] == before


async def test_a_node_upgrade_needs_at_most_21_writes(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1)
    rig.apply_plan("up", revision)
    rig.cluster.writes.clear()
    await rig.run_until(lambda: rig.is_over("up"))
    counted = [
        f"{one.verb} {one.kind} {one.name} {one.subresource}"
        for one in rig.cluster.writes
        if one.kind in {"NodeUpgrade", "Node", "Pod", "Job"} and not one.name.startswith("gang")
    ]
    counted.remove(
        next(each for each in counted if each.startswith("edit Job upgrade-"))
    )  # finds no Job: of its rights
    assert len(counted) <= 21, counted


async def test_a_restart_and_a_new_build_of_the_controller_change_no_node(rig: Rig) -> None:
    await start_training(rig)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    before = [node["metadata"]["resourceVersion"] for node in rig.nodes()]
    rig.restart(node_image="registry/upgrader@sha256:" + "1" * 64)
    for _ in range(30):
        await rig.run_second()
    assert [node["metadata"]["resourceVersion"] for node in rig.nodes()] == before


async def test_a_person_s_cordon_stays(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("up")))
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"unschedulable": True}})
    await rig.run_until(lambda: all(one.status.phase is NodePhase.RELEASING for one in rig.upgrades("up")))
    assert rig.nodes()[0]["spec"]["unschedulable"] is True
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"unschedulable": False}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_a_job_suspended_by_its_owner_is_not_restarted_by_us(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.cluster.store.change(JOBS, "gang", {"spec": {"suspend": True}}, "default")
    for _ in range(3):
        await rig.run_second()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.cluster.store.find(JOBS, "gang", "default")["spec"]["suspend"] is True
    assert rig.requests() == []
