"""A person's order for a node upgrade that waits: what it passes over, and what no order does."""

import asyncio

import pytest

from tests.support.terminal import upgrader
from upgrader.api import names
from upgrader.api.resources import JOBS, NODE_UPGRADES, PDBS, PODS
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade.force import FORCEABLE, force_refusal
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

WHO = ("--reason", "agreed with its owner", "--by", "ann")


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def ordered(rig: Rig, *words: str, code: int = 0) -> str:
    """What `upgrader force` answers."""
    ended = await asyncio.to_thread(upgrader, rig, "force", *words)
    assert ended.exit_code == code, ended.output
    return ended.stdout.strip() if code == 0 else ended.stderr


def pods(rig: Rig) -> set[str]:
    return {pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS)}


def test_every_step_is_either_forced_or_refused_with_a_sentence() -> None:
    assert {step for step in NodePhase if force_refusal(step)} == set(NodePhase) - set(FORCEABLE)


async def test_a_node_is_given_back_without_the_gang_that_cannot_be_placed(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.VALIDATING})
    rig.fleet.backing_off = {"gang"}
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.RELEASING})
    for _ in range(10):
        await rig.run_second()
    answer = await ordered(rig, "gpu-0", "--step", "Releasing", *WHO)
    assert answer == (
        "node gpu-0: the node is released without waiting for the placement of its gang, "
        "forced by ann: agreed with its owner"
    )
    await rig.run_until(lambda: NodePhase.SUCCEEDED in {one.status.phase for one in rig.upgrades("up")}, 30)
    found = {one.spec.node.name: (one.status.phase, one.spec.force) for one in rig.upgrades("up")}
    assert found["gpu-1"] == (NodePhase.RELEASING, [])
    assert [(one.step, one.by) for one in found["gpu-0"][1]] == [(NodePhase.RELEASING, "ann")]
    rig.fleet.backing_off = set()
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.fleet.trainers["gang"].lost) == (PlanPhase.COMPLETED, 0)


async def test_a_node_that_is_kept_after_its_failure_is_given_back_and_installed_anew(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1)

    def broken(component: str, _: Object) -> OrderResult | None:
        return OrderResult(reason=Reason.DEVICE_FAILED, message="fell off") if component == "validate" else None

    rig.fleet.pod_results = broken
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    assert [one.status.reason for one in rig.upgrades("up")] == ["RevertFailed"]
    rig.fleet.pod_results = lambda _component, _pod: None
    await ordered(rig, "gpu-0", "--step", "failed", *WHO)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    rig.assert_nothing_left()
    assert "released as it is after its upgrade failed, forced by ann: agreed with its owner" in {
        one.message for one in rig.cluster.events
    }


async def test_a_pod_that_its_budget_keeps_is_deleted_and_no_member_is(rig: Rig) -> None:
    revision = await start_training(rig, nodes=1, members=1, gpus=4)
    rig.fleet.add_replica("web", node="gpu-0", gpus=4)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {RequestPhase.PARKED})
    rig.cluster.store.put(
        PDBS,
        {
            "metadata": {"name": "never", "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0},
        },
    )
    rig.cluster.store.change(PODS, "web", {"metadata": {"labels": {"app": "web"}}}, "default")
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.DRAINING})
    for _ in range(10):
        await rig.run_second()
    assert "web" in pods(rig)
    await ordered(rig, "gpu-0", "--step", "Draining", *WHO)
    await rig.run_until(lambda: "web" not in pods(rig), 30)


@pytest.mark.parametrize("step", ["Prepared", "Validating", "Upgrading"])
async def test_what_proves_something_cannot_be_passed_over(rig: Rig, step: str) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: step in {one.status.phase.value for one in rig.upgrades("up")})
    answer = await ordered(rig, "gpu-0", "--step", step, *WHO, code=1)
    assert force_refusal(NodePhase(step)) in answer
    assert [one.spec.force for one in rig.upgrades("up")] == [[], []]


@pytest.mark.parametrize("said", [{}, {names.ANNOTATION_TIMEOUT: "soon"}], ids=["usable", "not usable"])
async def test_an_order_for_a_job_that_declares_how_it_is_asked_is_refused(rig: Rig, said: Object) -> None:
    rig.steps_at_once = 1  # seen in every phase
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.DRAINING})
    # It was bound there while the taint was on its way, and is no member of what acknowledged.
    rig.fleet.add_job("late", members=1, gpus=1)
    template = {"spec": {"template": {"metadata": {"annotations": said}}}}
    job = rig.cluster.store.change(JOBS, "late", template, "default")
    rig.fleet._add_pod("late-0-x", "default", "Job", job, node="gpu-0", index=0)
    await rig.run_until(lambda: {one.status.reason for one in rig.requests()} == {"WaitingForPods"})
    answer = await ordered(rig, "gpu-0", "--step", "Draining", *WHO, code=4)
    assert "gang default/Job/late declares a checkpoint method and has not stopped: it cannot be forced" in answer
    assert "--expendable default/Job/late" in answer
    # Whoever writes the order into the upgrade otherwise gets no further: nothing of a declared job is deleted.
    (upgrade,) = (one.metadata.name for one in rig.upgrades("up") if one.spec.node.name == "gpu-0")
    order = {"step": "Draining", "by": "ann", "at": "2026-11-21T09:00:00Z", "reason": "in a hurry"}
    rig.cluster.store.change(NODE_UPGRADES, upgrade, {"spec": {"force": [order]}})
    for _ in range(10):
        await rig.run_second()
    assert "late-0-x" in pods(rig)
    assert rig.fleet.trainers["gang"].stops == 0, "nor is the gang stopped for a node upgrade that may not come"


async def test_where_nothing_waits_there_is_nothing_to_force(rig: Rig) -> None:
    await start_training(rig)
    assert "no upgrade of node gpu-0 waits" in await ordered(rig, "gpu-0", "--step", "Draining", *WHO, code=1)
    assert "node gpu-9 not found" in await ordered(rig, "gpu-9", "--step", "Draining", *WHO, code=1)
    assert "unknown step Dancing" in await ordered(rig, "gpu-0", "--step", "Dancing", *WHO, code=1)
