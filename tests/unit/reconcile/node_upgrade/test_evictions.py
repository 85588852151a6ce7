"""What becomes of a node upgrade whose node has pods whose eviction the API server refuses."""

import pytest

from upgrader.api.resources import JOBS, PDBS, PODS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.errors import ClusterError, NotFoundError, ThrottledError
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader_dev.simulated.apiserver.cluster import Write
from upgrader_dev.simulated.cluster.rig import Rig, start_training

QUICK = {"timeoutSeconds": 30, "retrySeconds": 86400}


@pytest.fixture
async def rig() -> Rig:
    """Two nodes to upgrade, a pod of a Deployment on one of them and nothing else."""
    made = Rig()
    revision = await start_training(made, members=1, gpus=4)
    made.fleet.trainers.clear()
    made.cluster.store.remove(JOBS, "gang", "default")
    made.fleet.add_replica("web", node="gpu-0", gpus=4)
    made.cluster.store.change(PODS, "web", {"metadata": {"labels": {"app": "web"}}}, "default")
    await made.run_second()
    made.apply_plan("up", revision, checkpoint=QUICK)
    return made


def tried(rig: Rig) -> int:
    return sum(one.verb == "evict" for one in rig.cluster.writes)


def refuse(rig: Rig, error: Exception) -> None:
    """Every eviction is answered so."""

    async def refused(pod):
        rig.cluster.writes.append(EVICTION)
        raise error

    rig.cluster.evict = refused


def blocked(rig: Rig) -> tuple[str, str]:
    """Reason and message by which the upgrade of gpu-0 is blocked; empty before there is one."""
    found = [
        (one.reason, upgrade.status.message)
        for upgrade in web_upgrades(rig)
        for one in upgrade.status.conditions
        if one.type == "Blocked" and one.status == "True"
    ]
    return found[0] if found else ("", "")


def web_upgrades(rig: Rig) -> list[NodeUpgrade]:
    return [one for one in rig.upgrades("up") if one.spec.node.name == "gpu-0"]


async def draining(rig: Rig) -> None:
    await rig.run_until(lambda: bool(blocked(rig)[0]))


EVICTION = Write("evict", "Pod", "web", "default")

ANSWERS = {
    "with a time": (ThrottledError("wait", retry_after=42), 42, "PodDisruptionBudget does not allow"),
    "without a time": (ThrottledError("wait"), 10, "PodDisruptionBudget does not allow"),
    "with a time that would never come": (ThrottledError("wait", retry_after=86400), 300, "does not allow"),
    "forbidden": (ClusterError("not allowed", details="evict web"), 60, "pod default/web: not allowed (evict web)"),
}


@pytest.mark.parametrize(("error", "seconds", "said"), ANSWERS.values(), ids=ANSWERS)
async def test_a_refusal_is_shown_and_kept_to_even_by_a_new_controller(rig, error, seconds, said):
    refuse(rig, error)
    await draining(rig)
    reason, message = blocked(rig)
    assert reason == "EvictionRefused"
    assert said in message
    assert "default/web" in message
    before = tried(rig)
    for _ in range(seconds - 3):
        rig.restart()
        await rig.run_second()
    assert tried(rig) == before, "not one more, whoever asks"
    await rig.run_until(lambda: tried(rig) == before + 1, 10)
    assert blocked(rig)[0] == "EvictionRefused"


async def test_a_pod_under_two_budgets_is_told_with_both_their_names(rig):
    await rig.run_until(lambda: bool(web_upgrades(rig)))  # from here on no forecast holds it
    for name in ("one", "two"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}
        budget = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        rig.cluster.store.put(PDBS, {**budget, "status": {"disruptionsAllowed": 5}})
    await draining(rig)
    assert blocked(rig) == (
        "EvictionRefused",
        (
            "pod default/web: PodDisruptionBudgets one and two both select it, so the API server never evicts it; "
            "delete one of them"
        ),
    )
    before = tried(rig)
    for _ in range(50):
        await rig.run_second()
    assert tried(rig) == before
    rig.cluster.store.remove(PDBS, "two", "default")
    await rig.run_until(lambda: rig.is_over("up"), 1000)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_a_pod_that_is_gone_meanwhile_is_no_refusal(rig):
    refuse(rig, NotFoundError("pod web is not there"))
    await rig.run_until(lambda: tried(rig) > 0)
    assert blocked(rig) == ("", "")


async def test_a_budget_that_never_allows_lets_the_node_go_at_its_deadline(rig):
    refuse(rig, ThrottledError("wait", retry_after=42))
    await draining(rig)
    await rig.run_until(lambda: web_upgrades(rig)[0].status.phase is NodePhase.FAILED, 4000, stride=20)
    upgrade = web_upgrades(rig)[0]
    assert upgrade.status.reason == "NotDrained"
    drained = next(one for one in upgrade.status.steps if one.name is NodePhase.DRAINING)
    assert "PodDisruptionBudget does not allow" in drained.result
    rig.assert_nothing_left()


# ---- pods that the plan waits for


WAITS = {"checkpoint": {**QUICK, "waitFor": ["default/ReplicaSet/web"]}}


async def test_pods_that_a_plan_comes_to_wait_for_are_not_evicted_by_its_started_batch(rig):
    await rig.run_until(lambda: bool(web_upgrades(rig)))  # from here on no forecast holds it
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": WAITS})
    await rig.run_until(lambda: web_upgrades(rig)[0].status.phase is NodePhase.FAILED)
    upgrade = web_upgrades(rig)[0]
    assert upgrade.status.reason == "NotAcknowledged"
    assert upgrade.status.message.startswith("The plan waits until no pod of default/ReplicaSet/web runs on these")
    assert tried(rig) == 0
    assert NodePhase.TAINTING not in {one.name for one in upgrade.status.steps}, "nothing was touched"


async def test_a_pod_that_is_waited_for_and_comes_while_the_node_is_closed_undoes_the_closing(rig):
    rig.cluster.store.remove(PODS, "web", "default")
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": WAITS})
    await rig.run_until(lambda: bool(web_upgrades(rig)) and web_upgrades(rig)[0].status.phase is NodePhase.TAINTING)
    rig.fleet.add_replica("web", node="gpu-0", gpus=4)
    await rig.run_until(lambda: web_upgrades(rig)[0].status.phase is NodePhase.FAILED, 100)
    assert (web_upgrades(rig)[0].status.reason, tried(rig)) == ("NewGpuPod", 0)
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None)
    rig.assert_nothing_left()


async def test_while_it_is_not_known_what_is_waited_for_nothing_is_evicted(rig):
    """The list of all pods cannot be read, those of the node can: doubt holds."""
    rig.cluster.store.remove(PODS, "web", "default")
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": WAITS})
    await rig.run_until(lambda: bool(web_upgrades(rig)) and web_upgrades(rig)[0].status.phase is NodePhase.TAINTING)
    rig.fleet.add_replica("other", node="gpu-0", gpus=4)
    listed = rig.cluster.list

    async def partly(kind, namespace="", *, labels="", fields=""):
        if kind == PDBS:
            raise ClusterError("forbidden")
        return await listed(kind, namespace, labels=labels, fields=fields)

    rig.cluster.list = partly
    for _ in range(10):
        await plan_reconciler.reconcile_plan(rig.context, "up")
        rig.cluster.clock.advance(1)
    assert (web_upgrades(rig)[0].status.reason, tried(rig)) == ("NewGpuPod", 0)
