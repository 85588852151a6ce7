"""A stack whose GPUs get another resource name: what runs by the former one is seen, counted, and not ended."""

import pytest

from upgrader.api import names
from upgrader_dev.simulated.cluster.rig import Rig

RENAMED = ["nvidia.com/gpu.shared", "example.com/gpu"]


async def pool(resource: str, *, jobs: int, **strategy: object) -> Rig:
    """Four nodes with some jobs; a plan to a revision that offers GPUs by another name, and a few seconds of it."""
    rig = Rig()
    for number in range(4):
        rig.fleet.add_node(f"gpu-{number}")
    for version in ("1.0", "2.0"):
        rig.put_image(version)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    for number in range(jobs):
        rig.fleet.add_job(f"j{number}")
    await rig.run_until(lambda: all(one.step > 1 for one in rig.fleet.trainers.values()))
    spec = rig.make_spec("2.0", plugin="2")
    spec["devicePlugin"]["resourceName"] = resource
    rig.apply_plan("up", rig.apply_stack(spec), strategy=strategy)
    for _ in range(5):
        await rig.run_second()
    return rig


@pytest.mark.parametrize("resource", RENAMED)
async def test_gangs_that_ask_for_the_former_name_keep_their_nodes(resource):
    rig = await pool(resource, jobs=4, maxUnavailable=8)
    plan = rig.plan_now("up")
    assert {(one.subject, one.reason) for one in plan.status.blockers} == {
        (f"default/Job/j{number}", "ResourceNotOffered") for number in range(4)
    }
    assert (plan.status.batches, rig.upgrades("up"), rig.requests()) == ([], [], [])
    assert {node["metadata"]["labels"][names.LABEL_OPERANDS] for node in rig.nodes()} == {"on"}


async def test_nodes_of_the_former_name_count_with_all_their_gpus():
    rig = await pool("example.com/gpu", jobs=0, maxUnavailable=8)
    (batch,) = rig.plan_now("up").status.batches
    assert [(len(one.nodes), one.gpus) for one in batch.groups] == [(1, 8)]
