"""When gangs are stopped: all of a group in one step or none, once nothing else keeps its nodes from a node upgrade."""

import pytest

from upgrader.api.resources import PDBS, PODS
from upgrader.core.errors import ClusterError
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader_dev.simulated.cluster.rig import Rig

DAY = {"timeoutSeconds": 30, "retrySeconds": 86400}


@pytest.fixture
async def rig() -> Rig:
    """Two gangs, aa and bb, share the one node of the pool; a revision of the next driver is there."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.put_image("2.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    for name in ("aa", "bb"):
        rig.fleet.add_job(name, gpus=3)
    await rig.run_until(lambda: min((one.step for one in rig.fleet.trainers.values()), default=0) > 5)
    return rig


def start(rig: Rig) -> None:
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0", plugin="2")), checkpoint=DAY)


def phase(rig: Rig, job: str) -> RequestPhase | None:
    return next((one.status.phase for one in rig.requests() if one.spec.owner.name == job), None)


def stops(rig: Rig) -> dict[str, int]:
    return {name: trainer.stops for name, trainer in rig.fleet.trainers.items()}


def ended(rig: Rig) -> bool:
    batches = rig.plan_now("up").status.batches
    return bool(batches) and batches[0].ended_at is not None


@pytest.mark.parametrize("turncoat", ["aa", "bb"])
async def test_no_gang_is_stopped_in_the_step_in_which_a_fellow_takes_its_answer_back(rig: Rig, turncoat: str) -> None:
    rig.steps_at_once = 1  # seen in every phase

    def answer(pod: dict, request: int, step: int) -> dict:
        parked = phase(rig, turncoat) is not RequestPhase.STOPPING  # right before the stop it trains on again
        said = {"requestId": request, "podUid": pod["metadata"]["uid"], "step": step, "uri": "/data/c"}
        return {**said, "parked": parked}

    rig.fleet.trainers[turncoat].answers = answer
    start(rig)
    await rig.run_until(lambda: ended(rig), 900)
    assert stops(rig) == {"aa": 0, "bb": 0}
    assert {phase(rig, name) for name in ("aa", "bb")} == {RequestPhase.WITHDRAWN}
    rig.assert_nothing_left()


async def test_no_gang_is_stopped_before_the_stop_of_its_fellow_is_sure(rig: Rig) -> None:
    """The answers of one cannot be read right before the stop: that is doubt, and doubt holds both."""
    rig.cluster.files.clear()
    read = rig.cluster.read_file

    async def unreadable(pod, container, path):
        if pod.metadata.name.startswith("aa") and phase(rig, "aa") is RequestPhase.STOPPING:
            return None
        return await read(pod, container, path)

    rig.cluster.read_file = unreadable
    start(rig)
    await rig.run_until(lambda: ended(rig), 4000, stride=5)
    assert stops(rig) == {"aa": 0, "bb": 0}
    rig.assert_nothing_left()


async def test_no_gang_is_stopped_while_a_pod_beside_it_may_not_be_evicted(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=1)
    await rig.run_second()

    async def forbidden(pod):
        raise ClusterError("the API server does not allow this", details=f"pods/eviction of {pod.name}")

    rig.cluster.evict = forbidden
    start(rig)
    await rig.run_until(lambda: ended(rig), 4000, stride=5)
    assert [one.status.phase for one in rig.upgrades("up")] == [NodePhase.FAILED]
    assert stops(rig) == {"aa": 0, "bb": 0}
    rig.assert_nothing_left()


async def test_gangs_are_stopped_once_a_pod_beside_them_is_gone(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=1)
    rig.cluster.store.change(PODS, "web", {"metadata": {"labels": {"app": "web"}}}, "default")
    rig.fleet.ignores_sigterm = {"web"}
    start(rig)
    await rig.run_until(
        lambda: phase(rig, "aa") is RequestPhase.PARKED and rig.upgrades("up")[0].status.phase is NodePhase.DRAINING
    )
    for _ in range(10):
        await rig.run_second()
    assert [one.status.reason for one in rig.requests()] == ["WaitingForPods"] * 2
    rig.fleet.ignores_sigterm = set()
    await rig.run_until(lambda: rig.is_over("up"))
    assert stops(rig) == {"aa": 1, "bb": 1}
    assert {phase(rig, name) for name in ("aa", "bb")} == {RequestPhase.RESTORED}


async def test_a_budget_that_was_tightened_a_moment_ago_keeps_its_gang_from_being_stopped(rig: Rig) -> None:
    """The API server's own evictions take a budget for exhausted until its controller has counted again."""
    rig.steps_at_once = 1  # seen in every phase
    spec = {"selector": {"matchLabels": {"job": "aa"}}}
    counted = {"disruptionsAllowed": 1, "observedGeneration": 1}
    body = {"metadata": {"name": "never", "namespace": "default"}, "spec": {**spec, "minAvailable": 0}}
    rig.cluster.store.put(PDBS, body | {"status": counted})
    start(rig)
    await rig.run_until(lambda: phase(rig, "aa") is RequestPhase.STOPPING)
    rig.cluster.store.put(PDBS, body | {"spec": {**spec, "minAvailable": 1}, "status": counted})
    for _ in range(10):
        await rig.run_second()
    assert stops(rig) == {"aa": 0, "bb": 0}
    assert next(one.status.message for one in rig.requests() if one.spec.owner.name == "aa") == (
        "not stopped yet: PodDisruptionBudget never does not allow its disruption"
    )
