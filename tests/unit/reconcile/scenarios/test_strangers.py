"""What jobs, people, schedulers and clocks do while a plan runs: each a whole rollout in virtual time."""

from datetime import timedelta

import msgspec
import pytest

from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, JOBS, NODES, PODS
from upgrader.api.v1alpha1 import GpuStackSpec
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.core.model.revisions import revision_of
from upgrader.reconcile.observe.cluster_snapshot import target_of
from upgrader_dev.simulated.cluster.rig import RESOURCE, Rig, start_training

QUICK = {"timeoutSeconds": 60, "retrySeconds": 60}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def pods_of(rig: Rig, job: str) -> list[dict]:
    return [pod for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"].get("labels", {}).get("job") == job]


def placed(rig: Rig, job: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods_of(rig, job) if pod["status"].get("phase") == "Running"}


def said(rig: Rig) -> dict[str, tuple[RequestPhase, str]]:
    return {one.spec.gang: (one.status.phase, one.status.reason) for one in rig.requests()}


async def seconds(rig: Rig, count: int) -> None:
    for _ in range(count):
        await rig.run_second()


async def test_a_gang_over_more_nodes_than_the_budget_is_blocked_and_the_override_named(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 8})
    await rig.run_until(lambda: rig.nodes_on(revision) == 2)
    await seconds(rig, 30)
    status = rig.plan_now("up").status
    assert [one.reason for one in status.blockers] == ["GroupOverBudget"]
    assert "maxUnavailable: 16 (or 50%) would allow it" in status.blockers[0].message
    assert (status.phase, status.reason, rig.requests()) == (PlanPhase.RUNNING, "Blocked", [])
    assert rig.fleet.trainers["gang"].stops == 0


async def test_of_two_gangs_that_share_a_node_one_refuses_and_the_other_trains_on(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1, gpus=4)
    rig.fleet.add_job("other", members=1, gpus=4)
    await rig.run_until(lambda: len(placed(rig, "other")) == 1)
    rig.fleet.trainers["other"].answers = lambda pod, request, step: {
        "requestId": request,
        "podUid": pod["metadata"]["uid"],
        "step": step,
        "parked": False,
        "refused": "evaluating",
    }
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 60, "retrySeconds": 3600})
    await rig.run_until(
        lambda: len(rig.requests()) == 2 and all(p is RequestPhase.WITHDRAWN for p, _ in said(rig).values())
    )
    assert said(rig)["default/Job/other"] == (RequestPhase.WITHDRAWN, "Refused")
    assert said(rig)["default/Job/gang"][1] in {"FellowNotAcknowledged", "GroupReleased"}
    before = rig.fleet.trainers["gang"].step
    await seconds(rig, 10)
    assert rig.fleet.trainers["gang"].step >= before + 8
    assert {name: (one.stops, one.lost) for name, one in rig.fleet.trainers.items()} == {
        "gang": (0, 0),
        "other": (0, 0),
    }
    rig.assert_nothing_left()


async def test_a_job_that_ends_between_ask_and_stop_is_not_stopped_and_its_nodes_are_taken(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {RequestPhase.PARKED})
    for pod in pods_of(rig, "gang"):
        rig.cluster.store.change(PODS, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default")
    await rig.run_until(lambda: rig.is_over("up"))
    assert said(rig) == {"default/Job/gang": (RequestPhase.ENDED, "Finished")}
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.plan_now("up").status.counts.interruptions == 0
    rig.assert_nothing_left()


async def test_a_job_that_grows_between_forecast_and_asking_is_asked_as_a_whole_or_not_at_all(rig: Rig) -> None:
    revision = await start_training(rig, nodes=3)
    rig.apply_plan("up", revision, checkpoint=QUICK)
    await rig.run_until(
        lambda: (
            {one.status.phase for one in rig.upgrades("up")} >= {NodePhase.PREPARING} and rig.nodes_on(revision) == 1
        )
    )
    rig.cluster.store.change(JOBS, "gang", {"spec": {"parallelism": 3, "completions": 3}}, "default")
    await rig.run_until(lambda: rig.is_over("up"), 4000, stride=2)
    trainer = rig.fleet.trainers["gang"]
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision), trainer.lost) == (PlanPhase.COMPLETED, 3, 0)
    asked = {len(one.spec.members) for one in rig.requests() if one.status.stopped_at is not None}
    assert asked <= {3}
    rig.assert_nothing_left()


async def test_a_job_that_its_user_resumes_while_it_is_stopped_is_followed_and_nothing_is_left(rig: Rig) -> None:
    revision = await start_training(rig, nodes=2)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {RequestPhase.STOPPED})
    rig.cluster.store.change(JOBS, "gang", {"spec": {"suspend": False}}, "default")
    # Resumed by another client it has no toleration: its nodes are released without it at their deadline.
    await rig.run_until(lambda: rig.is_over("up"), 1500)
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert said(rig) == {"default/Job/gang": (RequestPhase.RESTORED, "Restored")}
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_nodes_that_join_leave_and_come_back_under_another_name_end_on_the_target(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    await rig.run_until(lambda: NodePhase.PREPARING in {one.status.phase for one in rig.upgrades("up")})
    free = sorted({one.spec.node.name for one in rig.upgrades("up")})
    rig.cluster.store.remove(NODES, free[0])
    rig.fleet.add_node("renamed")
    rig.fleet.add_node("joined")
    for pod in list(rig.cluster.store.copy_all(PODS)):
        if pod["spec"].get("nodeName") == free[0]:
            rig.cluster.store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    await rig.run_until(lambda: rig.is_over("up"), 3000, stride=2)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert NodePhase.NODE_DELETED in {one.status.phase for one in rig.upgrades("up")}
    assert (rig.nodes_on(revision), len(rig.nodes())) == (5, 5)
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize(
    "phase", [RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.STOPPED, RequestPhase.RESTARTING]
)
async def test_a_controller_whose_clock_is_an_hour_off_loses_no_step(rig: Rig, hours: int, phase: str) -> None:
    """A new leader with another clock: what it counts may end sooner or later, and nothing is lost."""
    revision = await start_training(rig)
    rig.apply_plan("up", revision, checkpoint=QUICK)
    await rig.run_until(lambda: RequestPhase(phase) in {one.status.phase for one in rig.requests()})
    rig.skew = timedelta(hours=hours)
    rig.restart()
    await rig.run_until(lambda: rig.is_over("up"), 20_000, stride=5)
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2), rig.describe_state()
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_a_full_cluster_whose_scheduler_refills_every_free_gpu_takes_no_place_of_the_gang(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.fleet.add_job("hungry", members=8, gpus=8)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2), rig.describe_state()
    assert (len(placed(rig, "gang")), placed(rig, "hungry")) == (2, set())
    assert (rig.fleet.trainers["gang"].lost, rig.fleet.trainers["gang"].stops) == (0, 2)
    rig.assert_nothing_left()


async def test_a_node_that_a_person_skips_between_forecast_and_batch_is_not_taken(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    await rig.run_until(lambda: len(rig.plan_now("up").status.batches) == 1)
    skipped = min(placed(rig, "gang"))
    rig.cluster.store.change(NODES, skipped, {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    await rig.run_until(lambda: rig.nodes_on(revision) == 2)
    await seconds(rig, 60)
    assert skipped not in {one.spec.node.name for one in rig.upgrades("up")}
    assert rig.fleet.trainers["gang"].stops == 0
    rig.cluster.store.change(NODES, skipped, {"metadata": {"labels": {names.LABEL_SKIP: None}}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.nodes_on(revision) == 4


# ---- several stacks


def second_stack(rig: Rig, version: str) -> str:
    """The stack of pool b; its revision."""
    spec = rig.make_spec(version) | {"nodeSelector": {"pool": "b"}}
    rig.cluster.store.put(GPU_STACKS, {"metadata": {"name": "pool-b"}, "spec": spec})
    return revision_of(target_of(msgspec.convert(spec, GpuStackSpec), "pool-b"))


def out_of_service(rig: Rig) -> int:
    """GPUs that no job could use now."""
    tainted = [
        node
        for node in rig.nodes()
        if any(one["key"] == names.TAINT_MAINTENANCE for one in node["spec"].get("taints", []))
    ]
    return len(tainted) * int(rig.fleet.gpus)


async def test_two_stacks_roll_out_at_once_inside_one_budget(rig: Rig) -> None:
    for number in range(3):
        rig.fleet.add_node(f"b-{number}", pool="b")
    second_stack(rig, "1.0")
    await start_training(rig, nodes=3, members=1)
    await rig.run_until(lambda: all(int(node["status"]["allocatable"].get(RESOURCE, 0)) for node in rig.nodes()))
    up, down = rig.apply_stack(rig.make_spec("2.0")), second_stack(rig, "2.0")
    limit = {"maxUnavailable": 8}
    rig.apply_plan("a", up, strategy=limit)
    rig.apply_plan("b", down, stack="pool-b", strategy=limit)
    most = 0
    for _ in range(900):
        if rig.is_over("a") and rig.is_over("b"):
            break
        await rig.run_second()
        most = max(most, out_of_service(rig))
    assert {rig.plan_now(one).status.phase for one in ("a", "b")} == {PlanPhase.COMPLETED}, rig.describe_state()
    assert (up, rig.nodes_on(up), most) == (down, 6, 8)
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_two_plans_of_two_stacks_run_beside_each_other_where_the_budget_has_room(rig: Rig) -> None:
    for number in range(2):
        rig.fleet.add_node(f"b-{number}", pool="b")
    second_stack(rig, "1.0")
    await start_training(rig, nodes=2, members=1)
    await rig.run_until(lambda: all(int(node["status"]["allocatable"].get(RESOURCE, 0)) for node in rig.nodes()))
    rig.apply_plan("a", rig.apply_stack(rig.make_spec("2.0")), strategy={"maxUnavailable": 8})
    rig.apply_plan("b", second_stack(rig, "2.0"), stack="pool-b", strategy={"maxUnavailable": 16})
    together = 0
    for _ in range(600):
        if rig.is_over("a") and rig.is_over("b"):
            break
        await rig.run_second()
        open_plans = [one for one in ("a", "b") if any(not b.ended_at for b in rig.plan_now(one).status.batches)]
        together += len(open_plans) == 2
        assert out_of_service(rig) <= 16
    assert together > 0
    assert {rig.plan_now(one).status.phase for one in ("a", "b")} == {PlanPhase.COMPLETED}
