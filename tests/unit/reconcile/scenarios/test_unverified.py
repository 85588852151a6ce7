"""Driver images that nobody vouches for: no node is given one unless its stack allows that."""

import pytest

from upgrader.api.resources import GPU_STACKS
from upgrader_dev.simulated.cluster.rig import Rig, start_training

WHAT_TO_DO = "set UPGRADER_IMAGE_KEY for the controller, or spec.driver.unverified: Allow in the stack"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def refusing(spec: dict) -> dict:
    return spec | {"driver": {key: value for key, value in spec["driver"].items() if key != "unverified"}}


def condition(rig: Rig, name: str) -> str:
    return next(one.message for one in rig.stack_now().status.conditions if one.type == name)


async def test_a_new_node_waits_and_is_told_what_to_do(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(refusing(rig.make_spec("1.0")))
    for _ in range(30):
        await rig.run_second()
    assert rig.upgrades() == []
    assert WHAT_TO_DO in str(rig.stack_now().status)
    rig.cluster.store.change(GPU_STACKS, "pool-a", {"spec": {"driver": {"unverified": "Allow"}}})
    await rig.settle()


async def test_a_node_keeps_the_image_that_it_has_and_a_plan_holds_it(rig: Rig) -> None:
    await start_training(rig)
    before = {node["metadata"]["name"]: node["metadata"]["labels"] for node in rig.nodes()}
    revision = rig.apply_stack(refusing(rig.make_spec("2.0", plugin="2", kubelet="1.35.4")))
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers), 60)
    assert WHAT_TO_DO in rig.plan_now("up").status.blockers[0].message
    for _ in range(30):
        await rig.run_second()
    assert {node["metadata"]["name"]: node["metadata"]["labels"] for node in rig.nodes()} == before
    assert rig.upgrades("up") == []
    rig.cluster.store.change(GPU_STACKS, "pool-a", {"spec": {"driver": {"unverified": "Allow"}}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.nodes_on(revision) == 2


async def test_to_allow_it_is_no_other_revision(rig: Rig) -> None:
    spec = rig.make_spec("1.0")
    assert rig.apply_stack(refusing(spec)) == rig.apply_stack(spec)
