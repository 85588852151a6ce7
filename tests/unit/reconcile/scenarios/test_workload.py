"""Who works on NVIDIA's GPUs before a node is released, in virtual time."""

import pytest

from tests.support.pools import on_nvidia
from upgrader.api.resources import PODS
from upgrader.core.model.phases import PlanPhase
from upgrader_dev.simulated.cluster.rig import Rig

SAMPLE = "registry/cuda-sample:1"


@pytest.fixture
async def rig() -> Rig:
    """A node on NVIDIA's driver, whose stack names no workload."""
    rig = Rig()
    await on_nvidia(rig, spec(rig), "gpu-0")
    return rig


def spec(rig: Rig, **validation: str) -> dict:
    return rig.make_spec("535.1") | {
        "driver": {"vendor": "nvidia", "version": "535.1", "unverified": "Allow"},
        "validation": validation,
    }


def workloads(rig: Rig) -> list[str]:
    """Images in the last validation pod beside that of the operator."""
    pods = [one for one in rig.cluster.store.copy_all(PODS) if one["metadata"]["name"].startswith("validate-")]
    last = max(pods, key=lambda one: one["metadata"]["creationTimestamp"])
    return [one["image"] for one in last["spec"]["containers"] if one["name"].startswith("workload-")]


async def test_a_workload_is_pinned_comes_by_a_plan_and_works_on_each_gpu(rig: Rig) -> None:
    assert workloads(rig) == []
    pinned = rig.registry.push(SAMPLE, "dd")
    revision = rig.apply_stack(spec(rig, workloadImage=SAMPLE))
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: rig.is_over("p"))
    assert rig.plan_now("p").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert workloads(rig) == [pinned] * 8


async def test_a_workload_that_is_in_no_registry_is_said_before_anything_is_planned(rig: Rig) -> None:
    rig.apply_stack(spec(rig, workloadImage="registry/none:1"))
    said = "registry/none:1 is not in its registry; push it, or correct spec.validation.workloadImage"
    await rig.run_until(lambda: any(one.message == said for one in rig.stack_now().status.conditions))
