"""What goes wrong, in virtual time: a clear reason, nothing lost, and every gang comes back."""

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core.errors import LostLeadershipError, UnreachableError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

QUICK = {"timeoutSeconds": 30, "retrySeconds": 86400}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def _fails(component: str, node: str, reason: Reason, version: str = "") -> object:
    """A node pod that fails on one node; with `version`, only on the way to that driver."""

    def pod_result(which: str, pod: Object) -> OrderResult | None:
        text = str(pod["spec"]["containers"][0].get("env", ""))
        if which == component and pod["spec"]["nodeName"] == node and version in text:
            return OrderResult(reason=reason, message=f"{component} failed on {node}")
        return None

    return pod_result


def _honest(pod: Object, request: int, step: int) -> Object:
    return {"requestId": request, "podUid": pod["metadata"]["uid"], "step": step, "uri": "/data/x", "parked": True}


def _is_released(rig: Rig) -> bool:
    batches = rig.plan_now("up").status.batches
    return bool(batches) and batches[0].ended_at is not None


async def test_what_cannot_be_pulled_is_found_before_anybody_is_asked(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    rig.fleet.pod_results = _fails("prepare", "gpu-1", Reason.MISSING)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    assert rig.requests() == []
    assert rig.fleet.trainers["gang"].stops == 0
    assert [(one.subject, one.reason) for one in rig.plan_now("up").status.failures] == [("gpu-1", "NotPrepared")]
    rig.assert_nothing_left()


async def test_a_kernel_without_an_image_is_a_blocker_that_names_it(rig: Rig) -> None:
    await start_training(rig)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("9.9")))
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    assert {one.reason for one in rig.plan_now("up").status.blockers} == {"NoDriverImage"}
    assert "6.1.0-47-amd64" in rig.plan_now("up").status.blockers[0].message
    assert rig.upgrades("up") == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ack: ack | {"requestId": ack["requestId"] - 1}, "AnsweredAnotherRequest"),
        (lambda ack: ack | {"podUid": "another"}, "WaitingForAnswers"),
        (lambda ack: ack | {"uri": "/run/checkpoint/x"}, "AckOnEphemeralStorage"),
        (lambda ack: ack | {"parked": False}, "NotParked"),
        (lambda ack: ack | {"parked": False, "refused": "evaluating"}, "Refused"),
        (lambda ack: {"nonsense": ack["requestId"]}, "WaitingForAnswers"),
    ],
    ids=["another id", "another pod", "emptyDir", "not parked", "refusal", "nonsense"],
)
async def test_an_answer_that_does_not_count_stops_nobody(rig: Rig, change, reason: str) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)
    rig.fleet.trainers["gang"].answers = lambda pod, request, step: change(_honest(pod, request, step))
    await rig.run_until(lambda: _is_released(rig), 2000, stride=20)
    assert [(one.status.phase, one.status.reason) for one in rig.requests()] == [(RequestPhase.WITHDRAWN, reason)]
    assert rig.fleet.trainers["gang"].stops == 0
    asked = [
        pod["metadata"].get("annotations", {}).get(names.ANNOTATION_REQUEST) for pod in rig.cluster.store.copy_all(PODS)
    ]
    assert set(asked) == {None}
    rig.assert_nothing_left()


async def test_unequal_steps_stop_nobody(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)

    def unequal(pod: Object, request: int, step: int) -> Object:
        index = int(pod["metadata"]["labels"]["index"])
        return _honest(pod, request, step + index)

    rig.fleet.trainers["gang"].answers = unequal
    await rig.run_until(lambda: _is_released(rig), 2000, stride=20)
    assert [one.status.reason for one in rig.requests()] == ["UnequalSteps"]
    assert rig.fleet.trainers["gang"].stops == 0


async def test_a_gpu_pod_that_appears_after_the_judgement_lets_the_group_go(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig, nodes=1, members=1, gpus=4), checkpoint=QUICK)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.TAINTING for one in rig.upgrades("up")))
    rig.fleet.add_job("late", members=1, gpus=4)
    late = rig.cluster.store.find(JOBS, "late", "default")
    rig.fleet._add_pod("late-0-x", "default", "Job", late, node="gpu-0", index=0)
    await rig.run_until(lambda: _is_released(rig), 2000, stride=20)
    assert "NewGpuPod" in {one.status.reason for one in rig.upgrades("up")}
    assert {name: one.stops for name, one in rig.fleet.trainers.items()} == {"gang": 0, "late": 0}
    rig.assert_nothing_left()


async def test_a_node_upgrade_that_was_ordered_when_its_node_had_another_driver_is_released(rig: Rig) -> None:
    """It would go back to that one: what the node has been given meanwhile would be lost."""
    rig.apply_plan("up", await start_training(rig, nodes=1, members=1), checkpoint=QUICK)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.TAINTING for one in rig.upgrades("up")))
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_DRIVER: "another"}}})
    await rig.run_until(lambda: _is_released(rig), 2000, stride=20)
    assert [(one.status.phase, one.status.reason) for one in rig.upgrades("up")] == [
        (NodePhase.FAILED, "DriverChanged")
    ]
    assert rig.fleet.trainers["gang"].stops == 0
    (node,) = rig.nodes()
    assert node["metadata"]["labels"][names.LABEL_DRIVER] == "another"
    rig.assert_nothing_left()


async def test_a_node_that_is_deleted_in_its_upgrade_ends_it_and_the_gang_comes_back_elsewhere(rig: Rig) -> None:
    revision = await start_training(rig, nodes=3)
    rig.apply_plan("up", revision)
    await rig.run_until(
        lambda: any(one.status.phase is NodePhase.UPGRADING and rig.requests() for one in rig.upgrades("up"))
    )
    gone = next(one.spec.node.name for one in rig.upgrades("up") if one.status.phase is NodePhase.UPGRADING)
    rig.cluster.store.remove(NODES, gone)
    for pod in list(rig.cluster.store.copy_all(PODS)):
        if pod["spec"].get("nodeName") == gone:
            rig.cluster.store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    await rig.run_until(lambda: rig.is_over("up"), 4000, stride=10)
    assert NodePhase.NODE_DELETED in {one.status.phase for one in rig.upgrades("up")}
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_a_pod_that_ignores_sigterm_is_waited_for(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    pods = (pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS))
    rig.fleet.ignores_sigterm = {name for name in pods if name.startswith("gang")}
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == [RequestPhase.STOPPING])
    for _ in range(20):
        await rig.run_second()
    assert {one.status.phase for one in rig.upgrades("up")} == {NodePhase.DRAINING}
    rig.fleet.ignores_sigterm = set()
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


@pytest.mark.parametrize(
    ("component", "reason"),
    [("upgrade", Reason.KUBELET_RESTORED), ("upgrade", Reason.BUSY), ("validate", Reason.DEVICE_FAILED)],
    ids=["kubelet put back", "driver busy", "validation"],
)
async def test_one_node_that_fails_takes_its_whole_group_back_before_the_gang_restarts(
    rig: Rig, component: str, reason: Reason
) -> None:
    before = rig.fleet
    revision = await start_training(rig)
    old = rig.nodes()[0]["metadata"]["labels"][names.LABEL_REVISION]
    rig.apply_plan("up", revision)
    before.pod_results = _fails(component, "gpu-1", reason, version='"2.0"' if component == "validate" else "1.35.4")
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    assert {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED}
    assert all(one.status.reverting for one in rig.upgrades("up"))
    said = {one.spec.node.name: one.status.message for one in rig.upgrades("up")}
    assert said["gpu-1"] == f"released. Why it failed: {component} failed on gpu-1"
    assert said["gpu-0"].endswith(" of the upgrade group reverts")
    assert [node["metadata"]["labels"][names.LABEL_REVISION] for node in rig.nodes()] == [old, old]
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in rig.nodes()} == {"v1.34.4"}
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED]
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


@pytest.mark.parametrize(
    "phase", [one for one in NodePhase if one not in {"Pending", "Succeeded", "Failed", "NodeDeleted"}]
)
async def test_an_abort_in_every_phase_leaves_nothing_stopped_or_marked(rig: Rig, phase: NodePhase) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: any(one.status.phase is phase for one in rig.upgrades("up")))
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.ABORTED
    assert rig.fleet.trainers["gang"].lost == 0
    step = rig.fleet.trainers["gang"].step
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > step, 30)
    assert len({node["metadata"]["labels"][names.LABEL_REVISION] for node in rig.nodes()}) == 1
    rig.assert_nothing_left()


@pytest.mark.parametrize(
    "phase", [RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED]
)
async def test_a_plan_that_is_deleted_restarts_what_it_stopped(rig: Rig, phase: RequestPhase) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == [phase])
    rig.cluster.store.mark_deleted(UPGRADE_PLANS, "up")
    await rig.run_until(lambda: rig.cluster.store.find(UPGRADE_PLANS, "up") is None)
    step = rig.fleet.trainers["gang"].step
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > step, 30)
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_an_api_server_that_is_away_for_a_while_costs_only_time(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    failed = 0
    for _ in range(12):
        for _ in range(4):
            if not rig.is_over("up"):
                await rig.run_second()
        rig.cluster.reachable = False
        try:
            await rig.run_second()
        except UnreachableError:
            failed += 1
        rig.cluster.reachable = True
        rig.cluster.clock.advance(30)
    await rig.run_until(lambda: rig.is_over("up"))
    assert failed > 1
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_controller_that_lost_its_lease_writes_nothing(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: any(one.status.phase is NodePhase.DRAINING for one in rig.upgrades("up")))
    rig.leadership.lost = True
    before = len(rig.cluster.writes)
    with pytest.raises(LostLeadershipError):
        await _seconds(rig, 5)
    assert len(rig.cluster.writes) == before


async def _seconds(rig: Rig, count: int) -> None:
    for _ in range(count):
        await rig.run_second()


async def test_a_rollback_goes_to_the_older_revision(rig: Rig) -> None:
    revision = await start_training(rig)
    old = rig.nodes()[0]["metadata"]["labels"][names.LABEL_REVISION]
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    rig.apply_plan("back", old)
    await rig.run_until(lambda: rig.is_over("back"))
    assert rig.plan_now("back").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert rig.nodes_on(old) == 2
    assert rig.stack_now().status.blocked_revision == revision
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_stack_that_follows_its_plan_does_not_supersede_it_and_another_wish_does(rig: Rig) -> None:
    revision = await start_training(rig, nodes=3)
    old = rig.make_spec("1.0")
    await rig.run_second()
    rig.apply_stack(old)
    await rig.run_second()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.RUNNING)
    rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
    await rig.run_until(lambda: rig.plan_now("up").status.stack_revision == revision)
    rig.apply_stack(old)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.SUPERSEDED
    rig.assert_nothing_left()


async def test_a_plan_whose_stack_comes_after_it_completes(rig: Rig) -> None:
    revision = await start_training(rig)
    await rig.run_second()
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_second()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.RUNNING)
    rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_a_node_with_a_new_kernel_is_brought_back_to_the_revision_it_had(rig: Rig) -> None:
    await start_training(rig, nodes=1, members=1)
    old = rig.nodes()[0]["metadata"]["labels"][names.LABEL_REVISION]
    rig.put_image("1.0", kernel="6.1.0-50-amd64")
    info = {"nodeInfo": {"kernelVersion": "6.1.0-50-amd64", "bootID": "boot-2"}}
    for pod in list(rig.cluster.store.copy_all(PODS)):
        if pod["metadata"]["name"].startswith("gang"):
            rig.cluster.store.remove(PODS, pod["metadata"]["name"], "default")
    rig.cluster.store.change(JOBS, "gang", {"spec": {"suspend": True}}, "default")
    rig.cluster.store.change(NODES, "gpu-0", {"status": info})
    await rig.run_until(
        lambda: any(one.spec.reason == "Repair" and one.status.phase is NodePhase.SUCCEEDED for one in rig.upgrades())
    )
    assert rig.nodes()[0]["metadata"]["labels"][names.LABEL_REVISION] == old
    rig.assert_nothing_left()
