"""Pods without GPUs on nodes that are rebooted: a reboot ends them too, so they are judged before anybody is asked."""

import pytest

from tests.support.two_kernels import NEXT, NOW, reboot_into, rig_with_gang
from upgrader.api import names
from upgrader.api.resources import PDBS, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.rig import Rig

REBOOT = reboot_into(NEXT)
QUICK = {"timeoutSeconds": 30, "retrySeconds": 86400}


@pytest.fixture
async def rig() -> Rig:
    return await rig_with_gang(nodes=1)


def plan(rig: Rig, *expendable: str, reboot: bool = True, **spec: object) -> None:
    wanted = rig.make_spec("2.0") | ({"reboot": REBOOT} if reboot else {})
    limits = {"maxInterruptions": 9, "expendable": list(expendable)}
    approval = {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": limits}
    rig.apply_plan("up", rig.apply_stack(wanted), checkpoint=QUICK, approval=approval, **spec)


async def blockers(rig: Rig) -> set[tuple[str, str]]:
    """What holds the plan, after long enough for anything to have been begun; and that nothing was."""
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    for _ in range(60):
        await rig.run_second()
    assert (rig.upgrades("up"), rig.requests(), rig.fleet.trainers["gang"].stops) == ([], [], 0)
    return {(one.subject, one.reason) for one in rig.plan_now("up").status.blockers}


def message(rig: Rig) -> str:
    return rig.plan_now("up").status.blockers[0].message


def pods(rig: Rig) -> set[str]:
    return {one["metadata"]["name"] for one in rig.cluster.store.copy_all(PODS)}


def change(rig: Rig, pod: str, **metadata: object) -> None:
    rig.cluster.store.change(PODS, pod, {"metadata": metadata}, "default")


async def test_a_pod_that_nobody_makes_again_holds_the_node_before_anybody_is_asked(rig: Rig) -> None:
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    plan(rig)
    assert await blockers(rig) == {("default/Pod/solo", "GangUndeclared")}
    assert message(rig).endswith(
        "It has no GPUs, but the reboot of gpu-0 would end solo; move these pods, or name it expendable in the "
        "approval."
    )
    rig.cluster.store.remove(PODS, "solo", "default")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_without_a_reboot_it_holds_nothing_and_stays(rig: Rig) -> None:
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    plan(rig, reboot=False)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, "solo" in pods(rig)) == (PlanPhase.COMPLETED, True)


async def test_a_job_without_gpus_that_says_nothing_is_waited_for(rig: Rig) -> None:
    rig.fleet.add_job("backup", gpus=0, method="")
    plan(rig)
    assert await blockers(rig) == {("default/Job/backup", "GangUndeclared")}


async def test_how_jobs_are_asked_that_do_not_say_is_meant_for_those_with_gpus(rig: Rig) -> None:
    rig.fleet.add_job("backup", gpus=0, method="")
    plan(rig)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"checkpoint": QUICK | {"method": "file"}}})
    assert await blockers(rig) == {("default/Job/backup", "GangUndeclared")}


async def test_a_job_without_gpus_that_can_be_asked_is_asked_stopped_and_restarted(rig: Rig) -> None:
    rig.fleet.add_job("indexer", gpus=0)
    await rig.run_until(lambda: rig.fleet.trainers["indexer"].step > 3)
    plan(rig)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    indexer = rig.fleet.trainers["indexer"]
    assert (indexer.stops, indexer.lost) == (1, 0)
    assert {one.spec.gang: one.status.phase for one in rig.requests()} == {
        "default/Job/gang": RequestPhase.RESTORED,
        "default/Job/indexer": RequestPhase.RESTORED,
    }
    rig.assert_nothing_left()


async def test_a_replicated_pod_that_forbids_it_holds_the_node(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    change(rig, "web", annotations={"karpenter.sh/do-not-disrupt": "true"})
    plan(rig)
    assert await blockers(rig) == {("default/ReplicaSet/web", "Vetoed")}
    assert message(rig).endswith("It has no GPUs, but the reboot of gpu-0 would end web.")


async def test_a_replicated_pod_whose_budget_allows_nothing_holds_the_node(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    change(rig, "web", labels={"app": "web"})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    budget = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    rig.cluster.store.put(PDBS, budget)
    plan(rig)
    assert await blockers(rig) == {("default/ReplicaSet/web", "PdbBlocks")}


async def test_a_replicated_pod_that_the_plan_waits_for_holds_the_node(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    plan(rig)
    checkpoint = QUICK | {"waitFor": ["default/ReplicaSet/web"]}
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"checkpoint": checkpoint}})
    assert await blockers(rig) == {("default/ReplicaSet/web", "WaitedFor")}


async def test_one_that_the_approval_names_is_evicted_after_the_gang_has_stopped(rig: Rig) -> None:
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    plan(rig, "default/Pod/solo")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert [one.name for one in rig.cluster.writes if one.verb == "evict"] == ["solo"]
    assert rig.fleet.trainers["gang"].lost == 0


async def test_one_that_comes_after_the_batch_was_started_lets_it_go_before_anybody_is_asked(rig: Rig) -> None:
    plan(rig)
    await rig.run_until(lambda: bool(rig.upgrades("up")))
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED)
    (upgrade,) = rig.upgrades("up")
    assert (upgrade.status.reason, rig.requests()) == ("NotAcknowledged", [])
    assert upgrade.status.message == (
        "default/Pod/solo was created after the batch started; it has no GPUs, but the upgrade would end it."
    )
    rig.assert_nothing_left()


async def test_one_that_comes_while_the_node_is_closed_lets_all_go_before_anybody_is_stopped(rig: Rig) -> None:
    plan(rig)
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades("up")] == [NodePhase.TAINTING])
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED)
    assert (rig.upgrades("up")[0].status.reason, rig.fleet.trainers["gang"].stops) == ("NewPod", 0)
    assert rig.plan_now("up").status.failures == []
    rig.assert_nothing_left()


async def test_one_that_somebody_ends_already_lets_nothing_go(rig: Rig) -> None:
    plan(rig)
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades("up")] == [NodePhase.TAINTING])
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    rig.fleet.ignores_sigterm = {"solo"}
    rig.cluster.store.mark_deleted(PODS, "solo", "default")
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades("up")] == [NodePhase.DRAINING])
    rig.fleet.ignores_sigterm = set()
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_pods_of_the_node_itself_hold_nothing_and_are_not_evicted(rig: Rig) -> None:
    for kind in ("Node", "DaemonSet"):
        rig.fleet.add_bare_pod(kind.lower(), node="gpu-0", gpus=0)
        owner = {"kind": kind, "name": "x", "uid": f"uid-{kind}", "controller": True}
        change(rig, kind.lower(), ownerReferences=[owner])
    plan(rig)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert [one for one in rig.cluster.writes if one.verb == "evict"] == []


async def test_the_stack_by_itself_reboots_nothing_and_waits_for_none_of_them(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0") | {"reboot": REBOOT})
    rig.fleet.add_node("gpu-9", kernel=NOW)
    rig.fleet.add_bare_pod("solo", node="gpu-9", gpus=0)
    await rig.run_until(lambda: len([one for one in rig.upgrades() if one.status.phase is NodePhase.SUCCEEDED]) == 2)
    assert (
        names.LABEL_DRIVER
        in next(one for one in rig.nodes() if one["metadata"]["name"] == "gpu-9")["metadata"]["labels"]
    )
    assert (rig.fleet.reboots, "solo" in pods(rig)) == ([], True)
