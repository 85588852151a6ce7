"""Whole rollouts in virtual time: the engine, the rendering and the rules are real, the world is tests/support/fleet.py."""

import msgspec
import pytest

from tests.support.rig import Rig
from upgrader.api import names
from upgrader.api.resources import JOBS, NODES
from upgrader.core.phases import NodePhase, PlanPhase, RequestPhase


async def _running(rig: Rig, *, nodes: int = 2, members: int = 2) -> str:
    for number in range(nodes):
        rig.fleet.node(f"gpu-{number}")
    rig.image("1.0")
    rig.image("2.0")
    rig.stack(rig.spec("1.0"))
    await rig.settle()
    rig.fleet.job("gang", members=members)
    await rig.until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig.stack(rig.spec("2.0", plugin="2", kubelet="1.35.4"))


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_new_nodes_are_installed_without_a_plan(rig: Rig) -> None:
    rig.fleet.node("gpu-0")
    rig.image("1.0")
    revision = rig.stack(rig.spec("1.0"))
    await rig.settle()
    (visit,) = rig.visits()
    assert visit.status.phase is NodePhase.SUCCEEDED
    labels = rig.nodes()[0]["metadata"]["labels"]
    assert labels[names.LABEL_REVISION] == revision
    assert labels[names.LABEL_OPERANDS] == "on"
    assert rig.nodes()[0]["spec"].get("taints", []) == []


async def test_a_gang_is_stopped_once_and_loses_no_step(rig: Rig) -> None:
    revision = await _running(rig)
    rig.plan("up", revision)
    await rig.until(lambda: rig.over("up"))
    trainer = rig.fleet.trainers["gang"]
    plan = rig.plan_now("up")
    assert plan.status.phase is PlanPhase.COMPLETED, rig.where()
    assert (trainer.lost, trainer.stops) == (0, 2)
    assert rig.nodes_on(revision) == 2
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in rig.nodes()} == {"v1.35.4"}
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED]
    assert names.ANNOTATION_STOPPED not in rig.cluster.store.find(JOBS, "gang", "default")["metadata"].get(
        "annotations", {}
    )
    assert all(names.ANNOTATION_VISIT not in node["metadata"].get("annotations", {}) for node in rig.nodes())


async def test_a_job_on_a_node_outside_the_pool_is_left_alone(rig: Rig) -> None:
    revision = await _running(rig)
    rig.fleet.node("other", pool="b")
    rig.plan("up", revision)
    before = rig.cluster.store.find(NODES, "other")["metadata"]
    await rig.until(lambda: rig.over("up"))
    after = rig.cluster.store.find(NODES, "other")["metadata"]
    assert msgspec.json.encode(after["labels"]) == msgspec.json.encode(before["labels"])


async def test_a_visit_needs_at_most_twenty_writes(rig: Rig) -> None:
    revision = await _running(rig, nodes=1, members=1)
    rig.plan("up", revision)
    rig.cluster.writes.clear()
    rig.cluster.events.clear()
    await rig.until(lambda: rig.over("up"))
    of_visit = [one for one in rig.cluster.writes if one.kind in {"NodeUpgrade", "Node", "Pod", "Job", "Event"}]
    conversation = [
        one
        for one in of_visit
        if one.kind == "Job" and one.name == "gang" or one.kind == "Pod" and one.name.startswith("gang")
    ]
    events = [one for one in rig.cluster.events if one.kind == "Node"]
    assert len(of_visit) - len(conversation) + len(events) <= 20, [
        f"{one.verb} {one.kind} {one.name}" for one in of_visit
    ]
