"""What people apply in a chaos run beside its one plan: in most runs nothing."""

from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.fleets import draw_fleet, install_fleet
from upgrader_dev.chaos.rollouts import (
    NEXT_PLAN,
    OTHER_PLAN,
    PLAN,
    ApplySchedule,
    NextRevision,
    Rollouts,
    draw_rollouts,
)
from upgrader_dev.simulated.cluster.rig import STACK, Rig

BESIDES = Rollouts(second_pool=20, next_plan=(30, NextRevision.NEWER), stack_goes=(40, 60))


def names_of(rig, kind):
    return {stored.value["metadata"]["name"] for stored in rig.cluster.store.list_stored(kind)}


def test_most_runs_have_one_plan():
    found = [draw_rollouts(Draws(seed, "rollouts"), nodes=2) for seed in range(400)]
    assert sum(each == Rollouts() for each in found) > 300
    assert all(any(getattr(each, field) is not None for each in found) for field in Rollouts.__struct_fields__)


def test_every_second_node_is_of_the_second_pool():
    assert [BESIDES.pool_of(f"gpu-{number}") for number in range(4)] == ["a", "c", "a", "c"]
    assert [Rollouts().pool_of(f"gpu-{number}") for number in range(2)] == ["a", "a"]


async def test_each_order_is_given_at_its_time():
    rig = Rig()
    fleet = draw_fleet(Draws(1, "fleet"), nodes=2)
    schedule = ApplySchedule(rig, BESIDES)
    await install_fleet(rig, fleet, schedule)
    schedule.start_rollouts(fleet.plan, fleet.target_spec(rig))
    seen = []
    for _ in range(11):
        seen.append(
            (names_of(rig, GPU_STACKS) == {STACK, "pool-c"}, names_of(rig, UPGRADE_PLANS), schedule.is_complete())
        )
        rig.cluster.clock.advance(10)
    assert [stacks for stacks, _, _ in seen] == [*([True] * 4), *([False] * 6), True]
    assert [plans for _, plans, _ in seen][1:4] == [{PLAN}, {PLAN, OTHER_PLAN}, {PLAN, OTHER_PLAN, NEXT_PLAN}]
    assert [given for _, _, given in seen] == [*([False] * 10), True]
