"""Canaries, soak, windows, deadline, wait for completion and going back by itself: whole rollouts in virtual time."""

from datetime import timedelta

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core import timing
from upgrader.core.forecast.canaries import MODEL_LABEL
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

SOAK = {"maxUnavailable": "100%", "canary": {"enabled": True, "soakSeconds": 120}}
BROKEN = OrderResult(reason=Reason.DEVICE_FAILED, message="fell off the bus")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def upgraded(rig: Rig, plan: str = "up") -> set[str]:
    return {one.spec.node.name for one in rig.upgrades(plan)}


def placed(rig: Rig, job: str = "gang") -> set[str]:
    pods = [pod for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"]["labels"].get("job") == job]
    return {pod["spec"].get("nodeName", "") for pod in pods if pod["status"].get("phase") == "Running"}


def finish(rig: Rig, job: str) -> None:
    """The job has done its work."""
    for pod in list(rig.cluster.store.copy_all(PODS)):
        if pod["metadata"]["labels"].get("job") == job:
            rig.cluster.store.change(PODS, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default")


def fails(rig: Rig, where: set[str], version: str) -> None:
    """The driver of a version fails on these nodes, and the one before does not."""

    def pod_result(component: str, pod: Object) -> OrderResult | None:
        broken = component == "validate" and pod["spec"]["nodeName"] in where and f'"{version}"' in str(pod)
        return BROKEN if broken else None

    rig.fleet.pod_results = pod_result


async def seconds(rig: Rig, count: int, *, restart: bool = False) -> None:
    for _ in range(count):
        if restart:
            rig.restart()
        await rig.run_second()


# ---- canaries


async def test_a_canary_is_watched_before_anything_else_is_touched(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.apply_plan("up", revision, strategy=SOAK)
    await rig.run_until(lambda: rig.plan_now("up").status.soak_until is not None)
    ended = rig.cluster.clock.now()
    status = rig.plan_now("up").status
    (canary,) = upgraded(rig)
    assert canary not in placed(rig)
    assert [one.kind for one in status.batches] == [BatchKind.CANARY]
    await seconds(rig, 60, restart=True)
    assert upgraded(rig) == {canary}
    assert rig.plan_now("up").status.soak_until == status.soak_until
    assert rig.plan_now("up").status.reason == "Soaking"
    await rig.run_until(lambda: len(rig.plan_now("up").status.batches) == 2)
    assert rig.cluster.clock.now() - ended >= timedelta(seconds=119)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 4)
    assert rig.plan_now("up").status.soak_until == status.soak_until


async def test_each_class_is_proven_by_a_canary_of_its_own(rig: Rig) -> None:
    """One node may be away at once, so the second canary comes after the first; nobody else does."""
    revision = await start_training(rig, nodes=4, members=1)
    for number, node in enumerate(rig.nodes()):
        model = {MODEL_LABEL: "H100" if number % 2 else "A100"}
        rig.cluster.store.change(NODES, node["metadata"]["name"], {"metadata": {"labels": model}})
    rig.apply_plan("up", revision, strategy=SOAK | {"maxUnavailable": 8})
    await rig.run_until(lambda: sum(one.ended_at is not None for one in rig.plan_now("up").status.batches) == 2)
    ended, status = rig.cluster.clock.now(), rig.plan_now("up").status
    assert [one.kind for one in status.batches] == [BatchKind.CANARY] * 2
    assert sorted(one.node_class.split(", ")[0] for one in status.ended.canaries) == ["A100", "H100"]
    assert timing.parse_time(status.soak_until) - ended == timedelta(seconds=119), (
        "watched from the end of the second on"
    )
    await rig.run_until(lambda: len(rig.plan_now("up").status.batches) == 3)
    assert rig.cluster.clock.now() - ended >= timedelta(seconds=119)
    await rig.run_until(lambda: rig.is_over("up"), 900)
    status = rig.plan_now("up").status
    assert (status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 4)
    assert [(one.kind, one.classes) for one in status.batches[2:]] == [(BatchKind.IDLE, {}), (BatchKind.ASKED, {})]


async def test_a_canary_that_was_let_go_proves_nothing_although_another_class_has_one(rig: Rig) -> None:
    revision = await start_training(rig, nodes=3, members=1)
    (busy,) = placed(rig)
    rig.cluster.store.change(NODES, busy, {"metadata": {"labels": {MODEL_LABEL: "A100"}}})
    rig.fleet.trainers["gang"].answers = lambda _pod, _request, _step: None
    checkpoint = {"timeoutSeconds": 30, "retrySeconds": 60}
    rig.apply_plan("up", revision, strategy=SOAK, checkpoint=checkpoint)
    await rig.run_until(lambda: rig.plan_now("up").status.soak_until is not None, 3000, stride=5)
    assert rig.nodes_on(revision) == 1
    rig.fleet.trainers["gang"].answers = None
    await rig.run_until(lambda: rig.is_over("up"), 3000, stride=5)
    status = rig.plan_now("up").status
    assert (status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 3), rig.describe_state()
    (again,) = [one.batch for one in status.ended.canaries if one.node == busy]
    assert again == 2, "the class that has proved nothing is asked again, as a canary"


async def test_a_canary_that_fails_stops_the_plan_whatever_is_tolerated(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    fails(rig, {node["metadata"]["name"] for node in rig.nodes()}, "2.0")
    rig.apply_plan("up", revision, strategy=SOAK, toleratedFailures=9)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    status = rig.plan_now("up").status
    assert (status.reason, status.soak_until, len(upgraded(rig))) == ("CanaryFailed", None, 1)
    assert [one.subject for one in status.failures] == list(upgraded(rig))
    assert rig.fleet.trainers["gang"].stops == 0
    await seconds(rig, 300)
    assert len(upgraded(rig)) == 1
    rig.fleet.pod_results = lambda _component, _pod: None
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"strategy": {"canary": {"enabled": False}}}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.nodes_on(revision) == 3


async def test_a_canary_that_goes_bad_while_it_is_watched_has_failed(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.apply_plan("up", revision, strategy=SOAK)
    await rig.run_until(lambda: rig.plan_now("up").status.soak_until is not None)
    (canary,) = upgraded(rig)
    rig.cluster.store.change(NODES, canary, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    rig.cluster.store.change(NODES, canary, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await seconds(rig, 200)
    status = rig.plan_now("up").status
    assert (status.phase, status.reason, upgraded(rig)) == (PlanPhase.PAUSED, "CanaryFailed", {canary})
    assert "healthy again" in status.message


# ---- windows and the deadline


def window(rig: Rig, *, opens_in: int, for_seconds: int) -> Object:
    begin = rig.cluster.clock.now() + timedelta(seconds=opens_in)
    end = begin + timedelta(seconds=for_seconds)
    return {"start": f"{begin:%H:%M}", "end": f"{end:%H:%M}", "timeZone": "UTC"}


async def test_a_batch_waits_for_its_window_and_says_so(rig: Rig) -> None:
    revision = await start_training(rig, nodes=3)
    opens = window(rig, opens_in=1200, for_seconds=3600)
    rig.apply_plan("up", revision, strategy={"windows": [opens]})
    await seconds(rig, 30)
    status = rig.plan_now("up").status
    assert (status.phase, status.reason, upgraded(rig)) == (PlanPhase.RUNNING, "Waiting", set())
    assert f"T{opens['start']}:00Z" in status.message
    assert status.forecast.next_starts_at is not None
    await rig.run_until(lambda: rig.is_over("up"), 4000, stride=10)
    started = timing.parse_time(rig.plan_now("up").status.batches[0].started_at)
    assert f"{started:%H:%M}" >= opens["start"]
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 3)


async def test_a_window_that_closes_ends_no_batch_and_the_next_waits_for_the_next_day(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    opens = window(rig, opens_in=-60, for_seconds=120)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16, "windows": [opens]})
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.UPGRADING})
    rig.cluster.clock.advance(100)
    await rig.run_until(lambda: [one.ended_at is not None for one in rig.plan_now("up").status.batches] == [True])
    await seconds(rig, 120)
    status = rig.plan_now("up").status
    assert (len(status.batches), status.reason, rig.nodes_on(revision)) == (1, "Waiting", 2)
    assert rig.fleet.trainers["gang"].stops == 0
    rig.cluster.clock.advance(23 * 3600)
    await rig.run_until(lambda: rig.is_over("up"), 7200, stride=5)
    first, second = (timing.parse_time(one.started_at) for one in rig.plan_now("up").status.batches)
    assert timedelta(hours=22) < second - first < timedelta(hours=25)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_at_its_deadline_a_plan_ends_with_what_is_under_way(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.fleet.trainers["gang"].answers = lambda *_: None  # the gang never answers
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16, "deadlineSeconds": 3600})
    await rig.run_until(lambda: rig.is_over("up"), 7200, stride=10)
    status = rig.plan_now("up").status
    assert (status.phase, status.reason) == (PlanPhase.FAILED, "DeadlinePassed")
    assert timing.parse_time(status.ended_at) >= timing.parse_time(status.started_at) + timedelta(hours=1)
    assert (rig.nodes_on(revision), rig.fleet.trainers["gang"].stops) == (2, 0)
    rig.assert_nothing_left()


async def test_a_time_zone_that_there_is_not_starts_nothing_and_is_said(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig), strategy={"windows": [{"timeZone": "Mars/Olympus"}]})
    await seconds(rig, 5)
    status = rig.plan_now("up").status
    assert (status.phase, status.reason) == (PlanPhase.PROPOSED, "NoForecast")
    assert "Mars/Olympus" in status.message


# ---- wait for completion


async def ending(rig: Rig, *, within: str) -> tuple[str, str]:
    """A job that says when it ends, on a node of its own; gives the next revision and that node."""
    revision = await start_training(rig, nodes=3)
    rig.apply_stack(rig.make_spec("1.0"))
    rig.fleet.add_job("short", members=1)
    rig.cluster.store.change(
        JOBS, "short", {"metadata": {"annotations": {names.ANNOTATION_EXPECTED_RUNTIME: within}}}, "default"
    )
    await rig.run_until(lambda: len(placed(rig, "short")) == 1)
    rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
    (node,) = placed(rig, "short")
    return revision, node


def marks(rig: Rig) -> dict[str, str]:
    return {
        node["metadata"]["name"]: one["value"]
        for node in rig.nodes()
        for one in node["spec"].get("taints", [])
        if one["key"] == names.TAINT_RESERVED
    }


async def test_a_job_that_ends_by_itself_is_waited_for_and_its_node_kept_free(rig: Rig) -> None:
    revision, node = await ending(rig, within="20m")
    rig.apply_plan("up", revision, strategy={"waitForCompletionSeconds": 3600})
    await rig.run_until(lambda: marks(rig) == {node: "up"})
    await rig.run_until(lambda: [one.ended_at is not None for one in rig.plan_now("up").status.batches] == [True])
    assert rig.plan_now("up").status.reserved_nodes == [node]
    writes = len([one for one in rig.cluster.writes if one.kind == "Node"])
    await seconds(rig, 60, restart=True)
    assert len([one for one in rig.cluster.writes if one.kind == "Node"]) == writes  # the mark is written once
    assert node not in upgraded(rig)
    finish(rig, "short")
    await rig.run_until(lambda: node in upgraded(rig), 20)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 3)
    assert rig.fleet.trainers["short"].stops == 0
    assert {one.spec.gang for one in rig.requests()} == {"default/Job/gang"}
    rig.assert_nothing_left()


@pytest.mark.parametrize("end", ["Aborted", "deleted", "superseded"])
async def test_the_mark_goes_with_its_plan_at_every_end(rig: Rig, end: str) -> None:
    revision, node = await ending(rig, within="20m")
    rig.apply_plan("up", revision, strategy={"waitForCompletionSeconds": 3600})
    await rig.run_until(lambda: marks(rig) == {node: "up"})
    if end == "deleted":
        rig.cluster.store.mark_deleted(UPGRADE_PLANS, "up")
        await rig.run_until(lambda: rig.cluster.store.find(UPGRADE_PLANS, "up") is None)
    elif end == "superseded":
        rig.put_image("3.0")
        rig.apply_stack(rig.make_spec("3.0"))
        await rig.run_until(lambda: rig.is_over("up"))
        await seconds(rig, 2)
    else:
        rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": end}})
        await rig.run_until(lambda: rig.is_over("up"))
        await seconds(rig, 2)
    assert marks(rig) == {}
    rig.assert_nothing_left()


# ---- going back


async def test_a_plan_may_go_back_by_itself_when_too_much_fails(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    (old,) = {node["metadata"]["labels"][names.LABEL_REVISION] for node in rig.nodes()}
    fails(rig, placed(rig), "2.0")
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16, "onFailure": "Rollback"})
    await rig.run_until(lambda: rig.is_over("up"), 3000, stride=5)
    status = rig.plan_now("up").status
    assert (status.phase, status.reason) == (PlanPhase.ABORTED, "RolledBack")
    await rig.run_until(lambda: rig.plan_now("up").status.rollback_plan is not None)
    undo = rig.plan_now("up").status.rollback_plan
    assert rig.plan_now(undo).spec.strategy.on_failure.value == "Pause"
    await rig.run_until(lambda: rig.is_over(undo), 3000, stride=5)
    assert (rig.plan_now(undo).status.phase, rig.nodes_on(old)) == (PlanPhase.COMPLETED, 4)
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


@pytest.mark.parametrize(
    "moment", ["after the first of three", "in the middle of the second", "in the middle of the third"]
)
async def test_from_any_batch_everything_goes_back(rig: Rig, moment: str) -> None:
    revision = await start_training(rig, nodes=6)
    (old,) = {node["metadata"]["labels"][names.LABEL_REVISION] for node in rig.nodes()}
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    if moment.startswith("after"):
        await rig.run_until(lambda: [one.ended_at is not None for one in rig.plan_now("up").status.batches] == [True])
    else:
        number = 2 if moment.endswith("second") else 3
        await rig.run_until(lambda: len(rig.plan_now("up").status.batches) == number)
        await rig.run_until(lambda: NodePhase.UPGRADING in {one.status.phase for one in rig.upgrades("up")})
    assert 0 < rig.nodes_on(revision) < 6
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "RolledBack"}})
    await rig.run_until(lambda: rig.is_over("up"))
    await rig.run_until(lambda: rig.plan_now("up").status.rollback_plan is not None)
    undo = rig.plan_now("up").status.rollback_plan
    await rig.run_until(lambda: rig.is_over(undo), 3000, stride=5)
    assert (rig.plan_now(undo).status.phase, rig.nodes_on(old)) == (PlanPhase.COMPLETED, 6), rig.describe_state()
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


# ---- what the status says


async def test_what_changed_in_the_forecast_is_said(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    rig.apply_plan("up", revision, strategy=SOAK)
    await rig.run_until(lambda: rig.plan_now("up").status.reason == "Soaking")
    skipped = min(placed(rig))
    rig.cluster.store.change(NODES, skipped, {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    await rig.run_until(lambda: rig.plan_now("up").status.changed != "", 20)
    said = rig.plan_now("up").status.changed
    assert "1 node(s) to upgrade instead of 3" in said
    assert "NodeSkipped" in said
    await rig.run_until(lambda: rig.plan_now("up").status.forecast.nodes == 0)
    assert upgraded(rig).isdisjoint(placed(rig))


async def test_what_it_cost_and_was_to_cost_is_in_the_status(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: bool(rig.plan_now("up").status.batches))
    ((share,),) = [[one.shares for one in batch.groups] for batch in rig.plan_now("up").status.batches]
    assert share["default/Job/gang"].gpus == 16
    await rig.run_until(lambda: rig.is_over("up"))
    lost = rig.plan_now("up").status.lost_gpu_hours
    assert lost.predicted > 0
    assert 0 < lost.actual < 1
    (request,) = rig.requests()
    assert request.spec.asked_at < request.status.parked_at < request.status.stopped_at < request.status.ended_at


async def test_a_job_that_has_just_ended_pauses_no_plan(rig: Rig) -> None:
    """It is still in the list of pods that all loops share; a pause for another approval is decided from a new one."""
    revision = await start_training(rig)
    rig.share_pod_lists(3600)
    await rig.context.workloads.read(rig.cluster)
    for kind in (JOBS, PODS):
        for value in rig.cluster.store.list_values(kind):
            if value["metadata"]["name"].startswith("gang"):
                rig.cluster.store.remove(kind, value["metadata"]["name"], "default")
    rig.apply_plan("up", revision, interruptions=0)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
