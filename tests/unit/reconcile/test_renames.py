"""A stack that says something new of which nothing is new on its nodes: they take its name, and no job is stopped."""

import pytest

from tests.support.drifting import plans, reboots
from tests.support.rig import Rig
from upgrader.api import names
from upgrader.api.resources import NODES
from upgrader.core.phases import PlanPhase, ends
from upgrader.reconcile import renames

SAME_KUBELET = {"kubelet": {"manage": True, "version": "1.34.4", "artifact": "registry/mirror:1", "binary": "/opt/k"}}


async def pool(nodes: int = 2) -> Rig:
    made = Rig()
    for number in range(nodes):
        made.fleet.node(f"gpu-{number}")
    made.image("1.0")
    made.registry.push("registry/mirror:1", "cc1")
    made.stack(made.spec("1.0"))
    await made.settle()
    return made


@pytest.fixture
async def rig() -> Rig:
    """Two nodes on driver 1.0, with a gang on both."""
    made = await pool()
    made.fleet.job("gang", members=2, gpus=8)
    await made.until(lambda: made.fleet.trainers["gang"].step > 5)
    return made


def without_kubelet(rig: Rig) -> dict[str, object]:
    return {key: value for key, value in rig.spec("1.0").items() if key != "kubelet"}


def revisions(rig: Rig) -> list[str]:
    return [one["metadata"]["labels"].get(names.LABEL_REVISION, "") for one in rig.nodes()]


def says(rig: Rig, name: str, ready: str) -> None:
    """What the node's kubelet says, or the node controller for it."""
    rig.cluster.store.change(NODES, name, {"status": {"conditions": [{"type": "Ready", "status": ready}]}})


async def look(rig: Rig, seconds: int = 90) -> None:
    """Long enough for drift to be answered, were there any."""
    for _ in range(seconds):
        await rig.second()


async def test_where_a_kubelet_comes_from_stops_nobody(rig: Rig) -> None:
    revision = rig.stack(rig.spec("1.0") | SAME_KUBELET | {"onDrift": "Propose"})
    assert rig.nodes_on(revision) == 0
    await look(rig)
    status, trainer = rig.stack_now().status, rig.fleet.trainers["gang"]
    assert (rig.nodes_on(revision), plans(rig), trainer.stops) == (2, [], 0)
    assert (status.current_revision, status.ready, status.drifted, status.drift) == (revision, 2, 0, [])


async def test_a_version_is_written_down_that_every_node_runs() -> None:
    rig = await pool()
    before = rig.stack(without_kubelet(rig))
    await rig.until(lambda: rig.nodes_on(before) == 2)
    rig.fleet.job("gang", members=2, gpus=8)
    await rig.until(lambda: rig.fleet.trainers["gang"].step > 5)
    revision = rig.stack(rig.spec("1.0"))
    await look(rig)
    assert (rig.nodes_on(revision), rig.fleet.trainers["gang"].stops) == (2, 0)


async def test_a_name_is_taken_back_like_any_other(rig: Rig) -> None:
    first = rig.stack(rig.spec("1.0"))
    second = rig.stack(rig.spec("1.0") | SAME_KUBELET)
    await rig.until(lambda: rig.nodes_on(second) == 2)
    assert rig.stack(rig.spec("1.0")) == first
    await rig.until(lambda: rig.nodes_on(first) == 2)
    assert rig.fleet.trainers["gang"].stops == 0


async def test_what_differs_besides_is_a_plans(rig: Rig) -> None:
    rig.image("2.0")
    revision = rig.stack(rig.spec("2.0") | SAME_KUBELET)
    await look(rig)
    assert (rig.nodes_on(revision), rig.stack_now().status.drifted) == (0, 2)


async def test_names_wait_while_a_plan_is_under_way() -> None:
    rig = await pool(3)
    rig.image("2.0")
    second = rig.stack(rig.spec("2.0"))
    rig.plan("up", second, strategy={"maxUnavailable": 8})
    await rig.until(lambda: rig.nodes_on(second) == 1 and len(rig.visits("up")) == 2)
    same, done = rig.stack(rig.spec("2.0") | SAME_KUBELET), revisions(rig).index(second)
    while any(not ends(one.status.phase) for one in rig.visits("up")):
        await rig.second()
        assert revisions(rig)[done] == second
    await rig.until(lambda: rig.nodes_on(same) == 2)
    assert (rig.nodes_on(second), rig.plan_now("up").status.phase) == (0, PlanPhase.SUPERSEDED)


async def test_no_name_is_taken_of_a_revision_that_was_left_again(rig: Rig) -> None:
    before = revisions(rig)
    for name in ("gpu-0", "gpu-1"):
        says(rig, name, "Unknown")
    same = rig.stack(rig.spec("1.0") | SAME_KUBELET)
    rig.plan("back", before[0])
    await rig.until(lambda: rig.over("back"))
    for name in ("gpu-0", "gpu-1"):
        says(rig, name, "True")
    await look(rig, 10)
    assert (revisions(rig), rig.stack_now().status.blocked_revision) == (before, same)


async def test_who_is_silent_or_left_alone_keeps_the_name(rig: Rig) -> None:
    says(rig, "gpu-0", "Unknown")
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    await rig.second()
    revision = rig.stack(rig.spec("1.0") | SAME_KUBELET)
    await look(rig, 10)
    assert rig.nodes_on(revision) == 0
    says(rig, "gpu-0", "True")
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {names.LABEL_SKIP: None}}})
    await rig.until(lambda: rig.nodes_on(revision) == 2)


async def test_a_large_pool_is_renamed_in_several_steps() -> None:
    count = renames.AT_ONCE + 3
    rig = await pool(count)
    revision = rig.stack(rig.spec("1.0") | SAME_KUBELET)
    await rig.second()
    assert rig.nodes_on(revision) == renames.AT_ONCE
    await rig.second()
    assert rig.nodes_on(revision) == count


async def test_a_node_that_rebooted_meanwhile_is_brought_back_first(rig: Rig) -> None:
    rig.image("1.0", kernel="6.1.0-50-amd64")
    revision = rig.stack(rig.spec("1.0") | SAME_KUBELET)
    reboots(rig, "gpu-0", boot="boot-2-gpu-0")
    await rig.second()
    assert rig.nodes_on(revision) == 1
