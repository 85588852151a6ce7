"""Pods that nobody makes again: waited for, unless the approval names their gang; then they go last, by eviction."""

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, PODS, UPGRADE_PLANS
from upgrader.core.errors import ThrottledError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.apiserver.cluster import Write
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

QUICK = {"timeoutSeconds": 30, "retrySeconds": 86400}


def approval(*gangs: str, interruptions: int = 9) -> Object:
    limits = {"maxInterruptions": interruptions, "expendable": list(gangs)}
    return {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": limits}


@pytest.fixture
async def rig() -> Rig:
    """Two nodes with a gang that trains on both, and a bare pod on each."""
    made = Rig()
    made.revision = await start_training(made, gpus=6)
    for number in range(2):
        made.fleet.add_bare_pod(f"solo-{number}", node=f"gpu-{number}", gpus=2)
    await made.run_second()
    return made


def pods(rig: Rig) -> set[str]:
    return {one["metadata"]["name"] for one in rig.cluster.store.copy_all(PODS)}


def evicted(rig: Rig) -> list[str]:
    return [one.name for one in rig.cluster.writes if one.verb == "evict"]


def alone(rig: Rig) -> None:
    """The gang has gone: only the bare pods are left."""
    rig.fleet.trainers.clear()
    rig.cluster.store.remove(JOBS, "gang", "default")


async def test_one_that_is_not_named_holds_its_group(rig: Rig) -> None:
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=approval("default/Pod/solo-0"))
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    found = {(one.subject, one.reason) for one in rig.plan_now("up").status.blockers}
    assert found == {("default/Pod/solo-1", "GangUndeclared")}
    for _ in range(200):
        await rig.run_second()
    assert {"solo-0", "solo-1"} <= pods(rig)
    assert (evicted(rig), rig.requests(), rig.upgrades("up")) == ([], [], [])


async def test_one_that_is_named_is_evicted_after_the_gang_beside_it_has_stopped(rig: Rig) -> None:
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=approval("default/Pod/solo-0", "default/Pod/solo-1"))
    phases: list[RequestPhase] = []
    evict = rig.cluster.evict

    async def seen(pod):
        phases.extend(one.status.phase for one in rig.requests())
        await evict(pod)

    rig.cluster.evict = seen
    await rig.run_until(lambda: rig.is_over("up"))
    plan = rig.plan_now("up")
    assert plan.status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert sorted(evicted(rig)) == ["solo-0", "solo-1"]
    assert set(phases) == {RequestPhase.STOPPED}
    assert not {"solo-0", "solo-1"} & pods(rig)
    assert [one.spec.gang for one in rig.requests()] == ["default/Job/gang"], "nobody asks what cannot answer"
    assert rig.fleet.trainers["gang"].lost == 0
    assert plan.status.counts.interruptions == 3
    rig.assert_nothing_left()


async def test_one_alone_on_its_node_holds_nobody_else_and_goes_when_it_is_named(rig: Rig) -> None:
    alone(rig)
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=approval("default/Pod/solo-0"))
    done = {"gpu-0": NodePhase.SUCCEEDED}
    await rig.run_until(lambda: {one.spec.node.name: one.status.phase for one in rig.upgrades("up")} == done)
    assert evicted(rig) == ["solo-0"]
    assert "solo-1" in pods(rig)
    named = {"spec": {"approval": approval("default/Pod/solo-0", "default/Pod/solo-1")}}
    rig.cluster.store.change(UPGRADE_PLANS, "up", named)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_another_pod_of_its_name_is_not_the_one_that_was_named(rig: Rig) -> None:
    alone(rig)
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=approval("default/Pod/solo-0"))
    await rig.run_until(lambda: NodePhase.TAINTING in {one.status.phase for one in rig.upgrades("up")})
    rig.cluster.store.remove(PODS, "solo-0", "default")
    rig.fleet.add_bare_pod("solo-0", node="gpu-0", gpus=2)
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED})
    assert (evicted(rig), "solo-0" in pods(rig)) == ([], True)
    assert [one.status.reason for one in rig.upgrades("up")] == ["NewGpuPod"]


async def test_a_name_that_the_approval_loses_meanwhile_saves_the_pod(rig: Rig) -> None:
    alone(rig)
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=approval("default/Pod/solo-0"))
    await rig.run_until(lambda: NodePhase.TAINTING in {one.status.phase for one in rig.upgrades("up")})
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"approval": approval()}})
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED})
    assert (evicted(rig), "solo-0" in pods(rig)) == ([], True)


async def test_its_budget_is_kept_to(rig: Rig) -> None:
    alone(rig)
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=approval("default/Pod/solo-0"))
    evict = rig.cluster.evict

    async def refused(pod):
        rig.cluster.writes.append(Write("evict", "Pod", pod.name, "default"))
        raise ThrottledError("wait")

    rig.cluster.evict = refused
    await rig.run_until(lambda: bool(evicted(rig)))
    await rig.run_second()
    (upgrade,) = rig.upgrades("up")
    blocked = [one.reason for one in upgrade.status.conditions if one.status == "True"]
    assert (upgrade.status.phase, blocked, "solo-0" in pods(rig)) == (NodePhase.DRAINING, ["EvictionRefused"], True)
    rig.cluster.evict = evict
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.SUCCEEDED)


async def test_they_count_as_interruptions(rig: Rig) -> None:
    named = approval("default/Pod/solo-0", "default/Pod/solo-1", interruptions=2)
    rig.apply_plan("up", rig.revision, checkpoint=QUICK, approval=named)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    assert "the next batch would stop 3 gang(s)" in rig.plan_now("up").status.message
    assert evicted(rig) == []
    assert names.ANNOTATION_STOPPED not in rig.cluster.store.find(JOBS, "gang", "default")["metadata"]
