"""A plan that asks in vain for days: status and objects do not grow with it, and it asks less and less often."""

import json
from datetime import timedelta
from itertools import pairwise

import pytest

from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core import timing
from upgrader.core.model.phases import RequestPhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
async def rig() -> Rig:
    """Four nodes, a gang of two on two of them that never answers; the others are upgraded."""
    rig = Rig()
    revision = await start_training(rig, nodes=4)
    rig.fleet.trainers["gang"].answers = lambda *_: None
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 60})
    return rig


def size(rig: Rig) -> int:
    return len(json.dumps(rig.cluster.store.find(UPGRADE_PLANS, "up")["status"]))


async def run_hours(rig: Rig, hours: int) -> None:
    """In strides: longer ones while no batch is under way."""
    end = rig.cluster.clock.now() + timedelta(hours=hours)
    while rig.cluster.clock.now() < end:
        await rig.run_second()
        under_way = any(one.ended_at is None for one in rig.plan_now("up").status.batches)
        rig.cluster.clock.advance(19 if under_way else 599)


@pytest.mark.slow
async def test_two_days_of_asking_in_vain_leave_no_more_than_one_day(rig: Rig) -> None:
    await run_hours(rig, 24)
    early = (size(rig), len(rig.upgrades("up")), len(rig.requests()))
    asked = rig.plan_now("up").status.ended.count
    await run_hours(rig, 24)
    late, status = (size(rig), len(rig.upgrades("up")), len(rig.requests())), rig.plan_now("up").status
    assert late[0] < early[0] + 100
    assert late[1:] == early[1:] == (4, 1)
    assert (status.counts.succeeded, status.counts.interruptions, len(status.batches)) == (2, 0, 10)
    assert status.ended.count - asked in {9, 10, 11, 12}, "every two hours once it was asked in vain often"
    assert {one.status.phase for one in rig.requests()} == {RequestPhase.WITHDRAWN}


async def test_a_gang_that_does_not_answer_is_left_alone_twice_as_long_each_time(rig: Rig) -> None:
    await run_hours(rig, 6)
    (blocker,) = rig.plan_now("up").status.blockers
    assert blocker.reason == "GangDoesNotAnswer"
    batches = rig.plan_now("up").status.batches
    gaps = [
        timing.parse_time(after.started_at) - timing.parse_time(before.ended_at or "")
        for before, after in pairwise(batches)
    ]
    assert [round(one.total_seconds() / 600) for one in gaps] == [1, 1, 2, 4, 8]


async def test_what_ended_batches_cost_still_counts(rig: Rig) -> None:
    await run_hours(rig, 1)
    early = rig.plan_now("up").status.lost_gpu_hours.actual
    await run_hours(rig, 5)
    status = rig.plan_now("up").status
    assert early > 0
    assert status.lost_gpu_hours.actual == early
    assert status.ended.lost_gpu_hours == pytest.approx(early, abs=0.01)
