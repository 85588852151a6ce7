"""Marks of nodes that wait for their jobs' natural end: they belong to their plan, and go with it."""

import pytest

from upgrader.api import names
from upgrader.api.resources import NODES, UPGRADE_PLANS
from upgrader.core.model.phases import PlanPhase
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

FOREIGN = {"key": "example.com/foreign", "value": "1", "effect": "NoSchedule"}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def reservation(plan: str) -> Object:
    return {"key": names.TAINT_RESERVED, "value": plan, "effect": "PreferNoSchedule"}


def taints(rig: Rig, node: str) -> list[Object]:
    return rig.cluster.store.find(NODES, node)["spec"].get("taints", [])


async def marked(rig: Rig, *, plan: str, node: str = "gpu-2") -> None:
    """A node as a controller leaves it that died after the mark."""
    rig.cluster.store.change(NODES, node, {"spec": {"taints": [FOREIGN, reservation(plan)]}})
    if plan == "up":
        rig.cluster.store.change(UPGRADE_PLANS, "up", {"status": {"reservedNodes": [node]}})
    rig.restart()


@pytest.mark.parametrize("state", ["Paused", "Aborted"])
async def test_a_plan_that_waits_for_nothing_any_more_takes_its_mark_away(rig: Rig, state: str) -> None:
    rig.apply_plan("up", await start_training(rig, nodes=3), state="Running")
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.RUNNING)
    await marked(rig, plan="up")
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": state}})
    await rig.run_until(lambda: rig.plan_now("up").status.reserved_nodes == [])
    assert taints(rig, "gpu-2") == [FOREIGN]


async def test_a_plan_that_is_deleted_goes_only_without_its_mark(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig, nodes=3))
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.RUNNING)
    await marked(rig, plan="up")
    rig.cluster.store.mark_deleted(UPGRADE_PLANS, "up")
    await rig.run_until(lambda: rig.cluster.store.find(UPGRADE_PLANS, "up") is None)
    assert taints(rig, "gpu-2") == [FOREIGN]


async def test_a_mark_whose_plan_was_torn_away_is_swept_by_its_stack(rig: Rig) -> None:
    await start_training(rig, nodes=3)
    await marked(rig, plan="torn-away")
    await rig.run_until(lambda: taints(rig, "gpu-2") == [FOREIGN])


async def test_a_mark_of_another_plan_is_left_to_that_plan(rig: Rig) -> None:
    revision = await start_training(rig, nodes=3)
    rig.apply_plan("later", revision, approval=None)
    rig.apply_plan("up", revision)
    rig.cluster.store.change(NODES, "gpu-2", {"spec": {"taints": [reservation("later")]}})
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"status": {"reservedNodes": ["gpu-2"]}})
    await rig.run_second()
    assert taints(rig, "gpu-2") == [reservation("later")]
