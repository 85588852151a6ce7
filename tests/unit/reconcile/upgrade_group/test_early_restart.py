"""Early restart: a stopped gang goes on at once where upgraded nodes in service are free for it."""

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
def rig() -> Rig:
    return Rig()


def placed(rig: Rig) -> set[str]:
    """Where the gang's members run."""
    pods = [pod for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"]["labels"].get("job") == "gang"]
    return {pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"}


async def stopped(rig: Rig, **plan: object) -> tuple[str, set[str]]:
    """Two spares upgraded, then the gang stopped; gives the target revision and the gang's own nodes."""
    revision = await start_training(rig, nodes=4)
    own = placed(rig)
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16}, **plan)
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {RequestPhase.STOPPED})
    assert rig.nodes_on(revision) == 2
    return revision, own


def swapping(rig: Rig, own: set[str]) -> set[NodePhase]:
    return {one.status.phase for one in rig.upgrades("up") if one.spec.node.name in own}


async def test_the_gang_goes_on_while_its_nodes_are_upgraded(rig: Rig) -> None:
    rig.steps_at_once = 1  # seen in every phase
    revision, own = await stopped(rig)
    await rig.run_until(lambda: len(placed(rig)) == 2)
    assert not placed(rig) & own
    (request,) = rig.requests()
    assert (request.status.restarted_early, request.status.reason) == (True, "Restarting")
    assert swapping(rig, own) & {NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING, NodePhase.VALIDATING}
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    trainer = rig.fleet.trainers["gang"]
    assert (trainer.lost, trainer.stops, rig.nodes_on(revision)) == (0, 2, 4)
    assert not placed(rig) & own
    rig.assert_nothing_left()


async def test_a_restart_of_the_controller_between_any_two_steps_makes_no_difference(rig: Rig) -> None:
    rig.steps_at_once = 1  # seen in every phase
    revision, own = await stopped(rig)
    for _ in range(400):
        if rig.is_over("up"):
            break
        rig.restart()
        await rig.run_second()
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert (rig.fleet.trainers["gang"].lost, rig.nodes_on(revision)) == (0, 4)
    assert not placed(rig) & own


@pytest.mark.parametrize(
    "why", ["taken", "tainted", "of another revision", "promised", "bound to its nodes", "in parts"]
)
async def test_where_no_spare_will_do_it_waits_for_its_own_nodes(rig: Rig, why: str) -> None:
    revision = await start_training(rig, nodes=4)
    own = placed(rig)
    (spare, _) = {node["metadata"]["name"] for node in rig.nodes()} - own
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {RequestPhase.REQUESTED})
    match why:
        case "taken":
            rig.fleet.add_replica("web", node=spare, gpus=1)
        case "tainted":
            taint = {"key": "example.com/foreign", "value": "1", "effect": "NoSchedule"}
            rig.cluster.store.change(NODES, spare, {"spec": {"taints": [taint]}})
        case "of another revision":
            rig.cluster.store.change(NODES, spare, {"metadata": {"labels": {names.LABEL_REVISION: "other"}}})
        case "in parts":
            rig.fleet.in_parts = {spare}
        case "promised":
            rig.fleet.add_job("another", members=9, gpus=8)
        case "bound to its nodes":
            volumes = [{"name": "scratch", "hostPath": {"path": "/mnt/scratch"}}]
            spec = rig.cluster.store.find(JOBS, "gang", "default")["spec"]["template"]["spec"]
            changed = {"spec": {"template": {"spec": {"volumes": [*spec["volumes"], *volumes]}}}}
            rig.cluster.store.change(JOBS, "gang", changed, "default")
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} >= {RequestPhase.RESTARTING})
    assert [one.status.restarted_early for one in rig.requests()] == [False]
    assert swapping(rig, own) <= {NodePhase.RELEASING, NodePhase.SUCCEEDED}


async def test_a_gang_that_went_ahead_is_not_brought_back_when_its_own_nodes_revert(rig: Rig) -> None:
    rig.steps_at_once = 1  # seen in every phase
    failing = OrderResult(reason=Reason.DEVICE_FAILED, message="fell off the bus")
    revision, own = await stopped(rig)
    rig.fleet.pod_results = lambda component, pod: (
        failing if component == "validate" and pod["spec"]["nodeName"] in own else None
    )
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    await rig.run_until(lambda: {one.status.phase for one in rig.requests()} == {RequestPhase.RESTORED})
    on = {rig.cluster.store.find(NODES, name)["metadata"]["labels"][names.LABEL_REVISION] for name in placed(rig)}
    assert (on, rig.fleet.trainers["gang"].lost) == ({revision}, 0)
