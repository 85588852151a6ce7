"""Who works on NVIDIA's GPUs before a node is given back, in virtual time."""

import pytest

from tests.support.pools import on_nvidia
from tests.support.rig import Rig
from upgrader.api.resources import PODS
from upgrader.core.phases import PlanPhase

SAMPLE = "registry/cuda-sample:1"


@pytest.fixture
async def rig() -> Rig:
    """A node on NVIDIA's driver, whose stack names no workload."""
    rig = Rig()
    await on_nvidia(rig, spec(rig), "gpu-0")
    return rig


def spec(rig: Rig, plugin: str = "1", **validation: str) -> dict:
    driver = {"vendor": "nvidia", "version": "535.1"}
    return rig.spec("535.1", plugin=plugin) | {"driver": driver, "validation": validation}


def workloads(rig: Rig) -> list[str]:
    """Images in the last validation pod beside ours."""
    pods = [one for one in rig.cluster.store.all(PODS) if one["metadata"]["name"].startswith("validate-")]
    last = max(pods, key=lambda one: one["metadata"]["creationTimestamp"])
    return [one["image"] for one in last["spec"]["containers"] if one["name"].startswith("workload-")]


async def test_a_workload_is_pinned_and_works_on_each_gpu_from_the_next_visit_on(rig: Rig) -> None:
    pinned = rig.registry.push(SAMPLE, "dd")
    named = rig.stack(spec(rig, workloadImage=SAMPLE))
    await rig.until(lambda: rig.nodes_on(named) == 1)
    assert (workloads(rig), rig.stack_now().status.drifted) == ([], 0)
    rig.plan("p", rig.stack(spec(rig, plugin="2", workloadImage=SAMPLE)))
    await rig.until(lambda: rig.over("p"))
    assert rig.plan_now("p").status.phase is PlanPhase.COMPLETED, rig.where()
    assert workloads(rig) == [pinned] * 8


async def test_a_workload_that_is_in_no_registry_is_said_before_anything_is_planned(rig: Rig) -> None:
    rig.stack(spec(rig, workloadImage="registry/none:1"))
    said = "registry/none:1 is not in its registry; push it, or correct spec.validation.workloadImage"
    await rig.until(lambda: any(one.message == said for one in rig.stack_now().status.conditions))
