"""Plans of different stacks take their steps at the same time: what they share is never given to two of them."""

import asyncio

import pytest

from tests.support.lone_gang import put_lone_gang
from tests.support.manifests import upgrade_plan
from tests.support.own_requests import own
from upgrader.api.resources import CHECKPOINT_REQUESTS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.request_machine import GroupOfGang
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.timing import format_time
from upgrader.core.workloads.placement import Placement
from upgrader.reconcile.checkpoint_request import request_history, request_reconciler
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader_dev.simulated.apiserver.far_cluster import FarCluster
from upgrader_dev.simulated.cluster.rig import Rig

GPU = "nvidia.com/gpu"


@pytest.fixture
def rig() -> Rig:
    return Rig(FarCluster())


async def two_pools(rig: Rig, nodes: int = 2) -> dict[str, str]:
    """Two pools on driver 1.0, each with a stack of its own that wants 2.0: its revision, by the name of the stack."""
    rig.put_image("1.0")
    rig.put_image("2.0")
    for pool in "ab":
        for number in range(nodes):
            rig.fleet.add_node(f"{pool}-{number}", pool=pool)
        rig.apply_stack(rig.make_spec("1.0") | {"nodeSelector": {"pool": pool}}, f"pool-{pool}")
    await rig.run_until(lambda: all(_installed(node) for node in rig.nodes()))
    wish = rig.make_spec("2.0", plugin="2", kubelet="1.35.4")
    return {f"pool-{pool}": rig.apply_stack(wish | {"nodeSelector": {"pool": pool}}, f"pool-{pool}") for pool in "ab"}


def _installed(node: dict) -> bool:
    return "gpu-upgrader.io/revision" in node["metadata"]["labels"] and not node["spec"].get("taints")


def out_of_service(rig: Rig, *plans: str) -> int:
    """GPUs of the started batches of all plans."""
    batches = [batch for name in plans for batch in rig.plan_now(name).status.batches if batch.ended_at is None]
    return sum(group.gpus for batch in batches for group in batch.groups)


async def test_two_plans_that_start_at_the_same_moment_share_one_budget(rig: Rig) -> None:
    wanted = await two_pools(rig)
    rig.side_by_side = True
    for stack, revision in wanted.items():
        rig.apply_plan(f"{stack}-up", revision, stack=stack, strategy={"maxUnavailable": 8})
    plans = [f"{stack}-up" for stack in wanted]
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, out_of_service(rig, *plans))
        return all(rig.is_over(name) for name in plans)

    await rig.run_until(over, 900)
    assert [rig.plan_now(name).status.phase for name in plans] == [PlanPhase.COMPLETED] * 2, rig.describe_state()
    assert most == 8, "the budget of each plan counts the batches of all"


# ---- lanes


def led(rig: Rig, gang: str, *, seconds: int, **status: object) -> None:
    """A request that a plan has begun."""
    put_lone_gang(rig, gang, seconds=seconds, **status)
    name, at = f"plan-of-{gang}", format_time(rig.cluster.clock.now())
    whole = f"default/Job/{gang}"
    batch = {"number": 1, "startedAt": at, "askUntil": at, "groups": [{"name": "c", "nodes": [], "gangs": [whole]}]}
    body = upgrade_plan(name) | {"status": {"phase": "Running", "batches": [batch]}}
    plan = rig.cluster.store.put(UPGRADE_PLANS, body)
    request = rig.cluster.store.find(CHECKPOINT_REQUESTS, gang, "default")
    rig.cluster.store.remove(CHECKPOINT_REQUESTS, gang, "default")
    request["spec"] |= {"gang": whole, "plan": name, "group": "c"}
    rig.cluster.store.put(CHECKPOINT_REQUESTS, own(request, plan["metadata"]["uid"]))


def request_of(rig: Rig, gang: str) -> CheckpointRequest:
    return next(one for one in rig.requests() if one.spec.owner.name == gang)


async def admit(rig: Rig, gang: str) -> None:
    """A plan's step for a gang, from counting the turns on."""
    context, request = rig.context, request_of(rig, gang)
    live = await read_request(context, request, GPU)
    group = GroupOfGang(nodes=(NodePhase.PREPARED,), turns=await request_history.turns_now(context, 1))
    place = Placement(left_behind=(), group="c")
    await request_reconciler.advance_request(context, live, group, where=lambda: place, ask_until=None, lane_width=1)


def admitted(rig: Rig) -> list[str]:
    return [one.spec.owner.name for one in rig.requests() if one.status.admitted_at is not None]


async def test_two_plans_never_admit_a_gang_each_to_one_lane(rig: Rig) -> None:
    """The second is made while the first is on its way in; its longer checkpoint would go first if both were seen."""
    led(rig, "short", seconds=60)

    async def another() -> None:
        for _ in range(8):  # the first has counted the turns by now, and has not written its own yet
            await asyncio.sleep(0)
        assert admitted(rig) == []
        led(rig, "long", seconds=600)
        await admit(rig, "long")

    await asyncio.gather(admit(rig, "short"), another())
    assert admitted(rig) == ["short"]
    assert {one.spec.owner.name: one.status.reason for one in rig.requests()} == {
        "long": "WaitingForLane",
        "short": "LaneFree",
    }


async def test_a_lane_that_another_plan_has_taken_meanwhile_is_waited_for(rig: Rig) -> None:
    """What was counted at the beginning of a plan's step may be old when its last group comes to its turn."""
    led(rig, "early", seconds=60)
    context = rig.context
    before = await request_history.turns_now(context, 1)
    led(rig, "late", seconds=600)
    await admit(rig, "late")
    request = request_of(rig, "early")
    group = GroupOfGang(nodes=(NodePhase.PREPARED,), turns=before)
    live = await read_request(context, request, GPU)
    place = Placement(left_behind=(), group="c")
    await request_reconciler.advance_request(context, live, group, where=lambda: place, ask_until=None, lane_width=1)
    assert admitted(rig) == ["late"]


async def test_a_request_whose_turn_began_at_no_readable_time_takes_no_place_in_a_lane(rig: Rig) -> None:
    led(rig, "odd", seconds=60, admittedAt="9999-12-31T23:59:59Z")
    led(rig, "other", seconds=60)
    await admit(rig, "other")
    assert await request_history.turns_now(rig.context, 1) == {request_of(rig, "other").metadata.name}
