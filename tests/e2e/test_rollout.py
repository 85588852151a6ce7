"""The main job, on real kubelets: nothing lost, one interruption, everything else left alone."""

from datetime import UTC, datetime

import pytest

from tests.e2e.conftest import OUTSIDE, POOL_NODES, VERSIONS, Pool, other, settled
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core import timing
from upgrader.core.model.phases import PlanPhase
from upgrader_dev.demo import evidence
from upgrader_dev.demo.report import VersionChange

pytestmark = [pytest.mark.e2e]


async def _containers(pool: Pool, node: str) -> set[tuple[str, int]]:
    """Container ids and restart counts of the pods on a node."""
    pods = await pool.kube.list(PODS, fields=f"spec.nodeName={node}")
    return {(one.container_id, one.restart_count) for pod in pods for one in pod.status.container_statuses}


@pytest.mark.gate
async def test_a_gang_lives_through_driver_plugin_and_kubelet(pool: Pool) -> None:
    before = (await pool.kube.get(GPU_STACKS, "pool")).spec.driver.version
    after = other(before)
    await pool.train("gang")
    bystander = pool.made.trainer("bystander", members=1, gpus=0, template={"nodeName": OUTSIDE})
    bystander["spec"]["template"]["spec"]["containers"][0].pop("resources")
    pool.jobs.append("bystander")
    await pool.kube.create(JOBS, bystander)
    await pool.steps("bystander", 10, members=1)
    outside = await _containers(pool, OUTSIDE)
    versions = await evidence.read_versions(pool.kube, pool.made)
    since = timing.format_time(datetime.now(UTC))
    plan = await pool.apply(after)
    await pool.steps("gang", 20)

    story = pool.story("gang")
    (request,) = await pool.requests(plan)
    assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
    assert (story.steps_lost, story.interruptions) == (0, 1)
    assert story.resumed_from == request.status.acknowledged_step
    assert len(await pool.revisions()) == 1
    assert await pool.kubelets() == {f"v{VERSIONS[after][0]}"}
    assert await _containers(pool, OUTSIDE) == outside
    nodes = {one.name: one for one in await evidence.read_nodes(pool.kube, pool.made, versions, since)}
    assert {nodes[name].driver for name in POOL_NODES} == {VersionChange(before=before, after=after)}
    assert nodes[OUTSIDE].driver == VersionChange(before="", after="")
    assert max(nodes[name].api_writes for name in POOL_NODES) <= 21, nodes
    await pool.nothing_left()


async def test_a_gang_that_needs_fewer_nodes_than_there_are_is_steered(pool: Pool) -> None:
    """Three nodes, a gang of two: without steering it could land on the node that still has the old driver."""
    before = await settled(pool)
    await pool.train("steered")
    used = set(pool.story("steered").members[0].nodes) | set(pool.story("steered").members[1].nodes)
    (idle,) = set(POOL_NODES) - used
    await _label(pool, idle, names.LABEL_SKIP, "true")
    try:
        plan = await pool.apply(other(before), watch=False)
        await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.counts.restored == 1, seconds=180)
        members = pool.story("steered").members
        assert {one.nodes[-1] for one in members} == used
        assert (pool.story("steered").steps_lost, pool.story("steered").interruptions) == (0, 1)
    finally:
        await _label(pool, idle, names.LABEL_SKIP, None)
    await pool.over(plan)


async def test_parking_switched_off_loses_steps(pool: Pool) -> None:
    """Negative control: a trainer that says it is parked and trains on loses what it did after its acknowledgement."""
    before = await settled(pool)
    # no checkpoint of its own accord: one that fell on its very last step would leave nothing lost
    flags = ("--no-park", "--step-seconds", "0.05", "--checkpoint-every", "100000")
    await pool.train("liar", arguments=flags)
    await pool.apply(other(before))
    await pool.steps("liar", 10)
    assert pool.story("liar").steps_lost > 0


async def test_a_restart_and_a_new_build_of_the_controller_change_no_node(pool: Pool) -> None:
    await settled(pool)
    before = {name: one.metadata.labels for name, one in (await pool.nodes()).items()}
    operands = await _operands(pool)
    pool.controller.stop()
    # another build: the same program under another digest
    pool.controller.start(NODE_IMAGE=pool.made.images.plugins["2"], IDLE_SECONDS="0.5")
    generation = (await pool.kube.get(GPU_STACKS, "pool")).metadata.generation
    await pool.eventually(GPU_STACKS, "pool", lambda one: one.status.observed_generation == generation)
    await pool.looked_at_again()
    assert {name: one.metadata.labels for name, one in (await pool.nodes()).items()} == before
    assert await _operands(pool) == operands


async def _operands(pool: Pool) -> set[str]:
    pods = await pool.kube.list(PODS, "gpu-upgrader-system")
    return {
        one.metadata.uid
        for one in pods
        if one.metadata.labels.get("gpu-upgrader.io/component") in {"driver", "device-plugin"}
    }


async def _label(pool: Pool, name: str, label: str, value: str | None) -> None:
    node = await pool.kube.get(NODES, name)
    await pool.kube.merge(NODES, node.metadata, {"metadata": {"labels": {label: value}}})
