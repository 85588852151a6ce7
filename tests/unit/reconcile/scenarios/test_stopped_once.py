"""A gang that a plan has stopped is not stopped again by it, whatever becomes of the record of that."""

from typing import Any

from upgrader.api.resources import CHECKPOINT_REQUESTS, NODES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training


def set_ready(rig: Rig, name: str, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": str(ready)}]
    rig.cluster.store.change(NODES, name, {"status": {"conditions": conditions}})


def pods_of_gang(rig: Rig) -> list[dict[str, Any]]:
    return [pod for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"]["namespace"] == "default"]


def blockers(rig: Rig) -> list[str]:
    return [blocker.reason for blocker in rig.plan_now("up").status.blockers]


async def move_gang_to_an_old_node(rig: Rig) -> None:
    """Two nodes, one not Ready, and a gang of one pod: stopped and restored once, then moved to the other node."""
    revision = await start_training(rig, nodes=2, members=1)
    (pod,) = pods_of_gang(rig)
    here = pod["spec"]["nodeName"]
    there = "gpu-1" if here == "gpu-0" else "gpu-0"
    set_ready(rig, there, ready=False)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    await rig.run_until(lambda: [request.status.phase for request in rig.requests()] == [RequestPhase.RESTORED])
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Paused"}})
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    set_ready(rig, there, ready=True)
    (pod,) = pods_of_gang(rig)
    rig.cluster.store.change(PODS, pod["metadata"]["name"], {"spec": {"nodeName": there}}, "default")
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Running"}})


async def test_a_gang_is_not_stopped_again_when_its_request_was_removed_by_force() -> None:
    rig = Rig()
    await move_gang_to_an_old_node(rig)
    await rig.run_until(lambda: blockers(rig) == ["GangAlreadyStopped"])
    (request,) = rig.requests()
    rig.cluster.store.remove(CHECKPOINT_REQUESTS, request.metadata.name, "default")
    for _ in range(600):
        await rig.run_second()
    status = rig.plan_now("up").status
    assert (rig.fleet.trainers["gang"].stops, blockers(rig), status.counts.interruptions) == (
        1,
        ["GangAlreadyStopped"],
        1,
    )
    assert status.stopped_owners == [request.spec.owner.uid]
    assert status.counts.restored == 1
