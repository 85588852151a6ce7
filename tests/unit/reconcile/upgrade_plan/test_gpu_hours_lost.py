"""GPU-hours that a plan has cost, by the times in its upgrades and requests."""

import msgspec
import pytest

from tests.support.lone_gang import put_lone_gang
from tests.support.manifests import checkpoint_request, upgrade_plan
from tests.support.node_upgrades import upgrade
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest, UpgradePlan
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.checkpoint_request.request_state import GroupOfGang
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.timing import format_time
from upgrader.core.workloads.placement import Placement
from upgrader.reconcile.checkpoint_request import request_reconciler
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader.reconcile.upgrade_plan.gpu_hours_lost import total_gpu_hours_lost
from upgrader_dev.simulated.cluster.ports import START
from upgrader_dev.simulated.cluster.rig import Rig

GANG, SOLO = "default/Job/train", "default/Pod/solo"


def at(clock):
    return f"2026-11-21T{clock}:00Z"


def plan(*, expendable=()):
    """Two gangs on the nodes of one group: one with 16 GPUs, and one of 4 that has run for two hours."""
    group = {
        "name": "group-1",
        "nodes": ["node-1", "node-2"],
        "gangs": [GANG, SOLO],
        "gpus": 20,
        "expendable": {name: ["uid-solo"] for name in expendable},
        "shares": {GANG: {"gpus": 16, "since": at("06:00")}, SOLO: {"gpus": 4, "since": at("08:00")}},
    }
    batch = {"number": 1, "groups": [group], "startedAt": at("09:00"), "askUntil": at("10:00")}
    return msgspec.convert(upgrade_plan() | {"status": {"batches": [batch]}}, UpgradePlan)


def live(asked="09:00", **status):
    body = checkpoint_request()
    body["spec"] |= {"gang": GANG, "askedAt": at(asked)}
    said = {name: at(value) if name.endswith("At") else value for name, value in status.items()}
    return msgspec.convert(body | {"status": said}, CheckpointRequest)


def ended(phase="Succeeded", *, end="Releasing", found=8):
    walk = (("Draining", "09:15", "09:30"), ("Unloading", "09:30", "09:35"), (end, "09:35", "10:00"))
    steps = [{"name": name, "startedAt": at(a), "endedAt": at(b), "deadline": at("11:00")} for name, a, b in walk]
    return upgrade(phase=phase, steps=steps, found={"gpus": found})


RESTORED = {"phase": "Restored", "parkedAt": "09:06", "stoppedAt": "09:15", "endedAt": "10:15"}


@pytest.mark.parametrize(
    ("upgrades", "requests", "hours"),
    [
        ([], [], 0.0),
        ([ended()], [], 4.0),
        ([ended("Upgrading", end="Upgrading")], [], 0.0),
        ([ended()], [live(**RESTORED)], 4.0 + 16 * 0.75),
        ([ended()], [live(**RESTORED, admittedAt="09:03")], 4.0 + 16 * 0.7),
        (
            [ended()],
            [live(**RESTORED | {"phase": "Ended", "reason": "NotRestored", "endedAt": "10:45"})],
            4.0 + 16 * 1.25,
        ),
        ([], [live(phase="Withdrawn", parkedAt="09:06", endedAt="09:30")], 8.0),
        ([], [live(phase="Withdrawn", endedAt="09:30")], 0.0),
        ([], [live(phase="Parked", parkedAt="09:06")], 0.0),
        ([], [live("09:30", phase="Withdrawn", parkedSeconds=900, endedAt="10:00")], 4.0),
        ([], [live("09:30", phase="Withdrawn", parkedSeconds=900, parkedAt="09:36", endedAt="10:00")], 4.0 + 8.0),
        ([], [live(phase="Restored", stoppedAt="09:15", endedAt="09:45")], 8.0),
        ([], [live(phase="Restored", stoppedAt="09:15", endedAt="09:45", terminated=True)], 8.0 + 16 * 3.25),
    ],
    ids=[
        "nothing",
        "a node upgrade",
        "a node upgrade that is not over",
        "asked, parked, stopped and restored beside the upgrade",
        "asked when its turn in the lane came",
        "not restored, until it was given up",
        "parked, and withdrawn",
        "withdrawn before it parked",
        "parked, and not over",
        "parked, and expired",
        "parked, expired, and parked again",
        "acknowledged and trained on until its stop",
        "stopped without an acknowledgement: all since its start is gone",
    ],
)
def test_what_was_lost(upgrades, requests, hours):
    assert total_gpu_hours_lost(plan(), upgrades, requests) == hours


@pytest.mark.parametrize(("upgrades", "hours"), [([], 0.0), ([ended()], 4.0 + 4 * 1.5)], ids=["not drained", "drained"])
def test_the_work_of_pods_that_nobody_makes_again_is_lost_when_they_go(upgrades, hours):
    assert total_gpu_hours_lost(plan(expendable=[SOLO]), upgrades, []) == hours


# ---- the times themselves


async def step(rig, node):
    """One step of the request while the gang's node is in this phase; its status then."""
    context = rig.context
    request = await context.cluster.get(CHECKPOINT_REQUESTS, "gang", "default")
    live = await read_request(context, request, "nvidia.com/gpu")
    place = Placement(left_behind=(), group="c")
    await request_reconciler.advance_request(
        context, live, GroupOfGang(nodes=(node,)), where=lambda: place, ask_until=None
    )
    return rig.requests()[0].status


async def test_how_long_a_gang_was_parked_outlives_the_asking_that_expired():
    rig = Rig()
    asked = format_time(START)
    put_lone_gang(rig, "gang", seconds=60, park=900, phase="Parked", parkedAt=asked, parkedSeconds=100)
    rig.cluster.clock.advance(880)
    status = await step(rig, NodePhase.PREPARED)
    assert (status.phase, status.parked_at, status.parked_seconds) == (RequestPhase.EXPIRED, None, 980)
    status = await step(rig, NodePhase.PREPARED)
    assert (status.phase, status.parked_at, status.parked_seconds) == (RequestPhase.REQUESTED, None, 980)


async def test_a_request_says_when_it_ended():
    rig = Rig()
    put_lone_gang(rig, "gang", seconds=60, phase="Parked", parkedAt=format_time(START))
    rig.cluster.clock.advance(30)
    status = await step(rig, NodePhase.FAILED)
    assert (status.phase, status.parked_at, status.ended_at) == (
        RequestPhase.WITHDRAWN,
        format_time(START),
        "2026-11-21T09:00:30Z",
    )


async def test_a_gang_of_which_one_member_parked_stood_still() -> None:
    rig = Rig()
    put_lone_gang(rig, "gang", seconds=60)
    context = rig.context
    request = await context.cluster.get(CHECKPOINT_REQUESTS, "gang", "default")
    live = await read_request(context, request, "nvidia.com/gpu")
    answer = Ack(pod_uid=request.spec.members[0].uid, request_id=request.spec.request_id, step=7, parked=True)
    half = msgspec.structs.replace(live, view=msgspec.structs.replace(live.view, answers=(answer,)))
    rig.cluster.clock.advance(30)
    place = Placement(left_behind=(), group="c")
    closed = GroupOfGang(nodes=(NodePhase.FAILED,))
    await request_reconciler.advance_request(rig.context, half, closed, where=lambda: place, ask_until=None)
    status = rig.requests()[0].status
    now = "2026-11-21T09:00:30Z"
    assert (status.phase, status.parked_at, status.ended_at) == (RequestPhase.WITHDRAWN, now, now)
