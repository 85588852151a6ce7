"""What happens to nodes and to the control plane while a gang is asked or stopped, on real kubelets.

The same troubles in virtual time, at more places: tests/unit/reconcile/scenarios/test_trouble.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.conftest import GPUS, POOL_NODES, VERSIONS, Pool, other, settled
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES, NODES, PODS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader_dev.demo import manifests, waiting
from upgrader_dev.demo.journals import parse_lines
from upgrader_dev.demo.scenes import run_command

pytestmark = [pytest.mark.e2e]

AWAY_SECONDS = 30
GRACE_SECONDS = 10  # terminationGracePeriodSeconds of the trainers


async def test_an_api_server_that_is_away_while_a_gang_is_stopped_costs_only_time(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("patient", members=3)
    plan = await pool.apply(other(before), watch=False)
    await pool.stopped(plan)
    await waiting.in_thread(pool.made.cluster.stop_api_server)
    since = time.monotonic()
    try:
        # It cannot renew its lease, so that it may not act any more, and ends.
        await waiting.wait_until(lambda: not pool.controller.running, seconds=60, what="the leader gives up")
        pool.controller.wait_ended()
        await waiting.wait_until(lambda: time.monotonic() > since + AWAY_SECONDS, seconds=60, what="it is away")
    finally:
        await waiting.in_thread(_bring_back, pool)
    pool.controller.start()  # as its Deployment does
    assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
    await pool.steps("patient", 10, members=3)
    assert (pool.story("patient").steps_lost, pool.story("patient").interruptions) == (0, 1)
    assert len(await pool.revisions()) == 1
    await pool.nothing_left()


def _bring_back(pool: Pool) -> None:
    """The control plane: without leases of their own its other parts would look for the API server once a minute."""
    cluster = pool.made.cluster
    cluster.start_api_server()
    for program in ("kube-controller-manager", "kube-scheduler"):
        cluster.restart(program)


async def test_a_node_that_fails_validation_takes_its_sibling_back_before_the_gang_restarts(pool: Pool) -> None:
    before = await settled(pool)
    after = other(before)
    await pool.train("fragile")
    revisions = await pool.revisions()
    sound, broken = pool.nodes_of("fragile")
    (idle,) = set(POOL_NODES) - {sound, broken}
    async with _marked(pool, idle, {"metadata": {"labels": {names.LABEL_SKIP: "true"}}}):
        async with asyncio.TaskGroup() as beside:
            beside.create_task(_break_devices(pool, broken, after))
            plan = await pool.apply(after, watch=False)
            paused = await pool.eventually(
                UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.PAUSED, seconds=300
            )
        assert [(one.subject, one.reason) for one in paused.status.failures] == [(broken, "NotValid")]
        await _went_back_together(pool, plan, {sound: "SiblingReverted", broken: "NotValid"})
        assert await pool.revisions() == revisions
        assert await pool.kubelets() == {f"v{VERSIONS[before][0]}"}
        await pool.steps("fragile", 10)
        assert await _devices(pool) == {f"sim {before} sim-gpu0 simulated"}
        assert (pool.story("fragile").steps_lost, pool.story("fragile").interruptions) == (0, 1)
        await run_command(pool.made.cluster, print, "abort", plan)
        assert (await pool.over(plan)).status.phase is PlanPhase.ABORTED
        await pool.install(before)
    await pool.nothing_left()


async def _break_devices(pool: Pool, node: str, driver: str) -> None:
    """A board that does not work with this driver: as soon as it is loaded, the devices say nonsense."""
    box, state = pool.made.cluster.box_node(node), f"{RUN_DIRECTORY}/sim"

    async def loaded() -> bool:
        said = await waiting.in_thread(box.enter, "cat", f"{state}/loaded.json", check=False)
        return f'"version": "{driver}"'.encode() in said.stdout

    await waiting.poll_until(loaded, 240, f"driver {driver} is loaded on {node}")
    await waiting.in_thread(box.enter, "sh", "-c", f"for one in {state}/dev/*; do echo broken > $one; done")


async def _went_back_together(pool: Pool, plan: str, reasons: dict[str, str]) -> None:
    """Both were valid again on what they had before, and only then the gang was restarted, once."""
    (request,) = await pool.requests(plan)
    upgrades = await pool.upgrades(plan)
    assert {name: one.status.reason for name, one in upgrades.items()} == reasons
    for one in upgrades.values():
        phases = [step.name for step in one.status.steps]
        assert one.status.reverting
        assert phases[-5:] == [NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING, "Validating", "Releasing"]
        assert timing.parse_time(one.status.steps[-1].started_at) <= timing.parse_time(request.status.restarted_at)


async def _devices(pool: Pool) -> set[str]:
    """What the devices say that the trainers hold."""
    pods = await pool.kube.list(PODS, "default")
    return {(await pool.kube.read_file(pod, "trainer", "/dev/sim-gpu0") or b"").decode().strip() for pod in pods}


async def test_a_node_that_is_deleted_in_its_upgrade_ends_it_and_the_gang_comes_back_elsewhere(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("bereft")
    gone, stays = pool.nodes_of("bereft")
    (idle,) = set(POOL_NODES) - {gone, stays}
    plan = await pool.apply(other(before), watch=False)
    await pool.stopped(plan)
    upgrade = (await pool.upgrades(plan))[gone]
    taken = {NodePhase.UNLOADING, NodePhase.UPGRADING}
    await pool.eventually(NODE_UPGRADES, upgrade.metadata.name, lambda one: one.status.phase in taken)
    await pool.kube.delete(NODES, (await pool.nodes())[gone].metadata)
    await pool.eventually(NODE_UPGRADES, upgrade.metadata.name, lambda one: one.status.phase is NodePhase.NODE_DELETED)
    await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.counts.restored == 1, seconds=180)
    assert set(pool.nodes_of("bereft")) == {stays, idle}
    assert (pool.story("bereft").steps_lost, pool.story("bereft").interruptions) == (0, 1)
    # it joins again as another node of that name, on which the former driver is still loaded
    box = pool.made.cluster.box_node(gone)
    await waiting.in_thread(box.restart, "kubelet")
    await waiting.in_thread(box.wait_ready)
    await pool.eventually(GPU_STACKS, "pool", lambda one: one.status.ready == len(POOL_NODES), seconds=180)
    assert (await pool.nodes())[gone].metadata.uid != upgrade.spec.node.uid
    assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
    assert len(await pool.revisions()) == 1
    await pool.steps("bereft", 10)
    assert pool.story("bereft").interruptions == 1
    await pool.nothing_left()


async def test_a_cordon_is_left_alone_and_a_pod_that_ignores_sigterm_is_waited_for(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("stubborn", members=1, arguments=("--ignore-sigterm",))
    (used,) = pool.nodes_of("stubborn")
    cordoned, free = sorted(set(POOL_NODES) - {used})
    cordon = {"spec": {"unschedulable": True}}
    async with _marked(pool, cordoned, cordon):
        plan = await pool.apply(other(before), watch=False)
        request = await _request(pool, plan, RequestPhase.STOPPING)
        async with _marked(pool, used, cordon):
            assert (await pool.upgrades(plan))[used].status.phase is NodePhase.DRAINING
            await pool.stopped(plan)
            assert await pool.kube.list(PODS, "default") == []
            assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
            nodes = await pool.nodes()
            assert {name for name, one in nodes.items() if one.spec.unschedulable} == {cordoned, used}
            assert all("node.kubernetes.io/unschedulable" in _taints(nodes[name]) for name in (cordoned, used))
            assert len(await pool.revisions()) == 1
            assert pool.nodes_of("stubborn") == [free]
    assert await _seconds_until_off(pool, plan, used, request) >= GRACE_SECONDS
    journal = parse_lines((pool.made.journals("stubborn") / "member-0.jsonl").read_bytes())
    assert "stop" not in {one.event for one in journal}  # it did not end by itself
    assert (pool.story("stubborn").steps_lost, pool.story("stubborn").interruptions) == (0, 1)
    await pool.nothing_left()


def _taints(node: Any) -> set[str]:
    return {one.key for one in node.spec.taints}


async def _seconds_until_off(pool: Pool, plan: str, node: str, request: Any) -> float:
    """From the intent to stop a gang until its node was taken out of service."""
    steps = (await pool.upgrades(plan))[node].status.steps
    (off,) = [step for step in steps if step.name is NodePhase.UNLOADING]
    return (timing.parse_time(off.started_at) - timing.parse_time(request.status.stopped_at)).total_seconds()


async def test_a_pod_that_takes_gpus_after_the_judgement_is_never_ended_by_us(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("shared", members=3, gpus=GPUS - 3)
    plan = await pool.apply(other(before), consent=("--retry", "5"), watch=False)
    await _request(pool, plan, RequestPhase.PARKED)
    late = await pool.kube.create(PODS, _late(pool, pool.nodes_of("shared")[0]))
    await _request(pool, plan, RequestPhase.WITHDRAWN, seconds=60)
    assert "NewGpuPod" in {one.status.reason for one in (await pool.upgrades(plan)).values()}
    await pool.eventually(
        UPGRADE_PLANS, plan, lambda one: "GangUndeclared" in {blocker.reason for blocker in one.status.blockers}
    )
    await pool.steps("shared", 10, members=3)
    assert pool.story("shared").interruptions == 0
    await pool.nothing_left()

    (pool.made.cluster.shared / "late-may-end").touch()
    assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
    ended = await pool.kube.get(PODS, "late", "default")
    assert (ended.metadata.uid, ended.status.phase) == (late.metadata.uid, "Succeeded")
    assert (pool.story("shared").steps_lost, pool.story("shared").interruptions) == (0, 1)
    assert len(await pool.revisions()) == 1
    await pool.nothing_left()


def _late(pool: Pool, node: str) -> manifests.Manifest:
    """A person's pod with GPUs that no scheduler was asked for, so that no taint keeps it away."""
    container = {
        "name": "main",
        "image": pool.made.images.trainer,
        "command": ["sh", "-c", f"until [ -e {manifests.CHECKPOINTS}/late-may-end ]; do sleep 0.2; done"],
        "resources": {"limits": {manifests.RESOURCE: "2"}},
        "volumeMounts": [{"name": "shared", "mountPath": manifests.CHECKPOINTS}],
    }
    shared = {"name": "shared", "hostPath": {"path": manifests.SHARED, "type": "Directory"}}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container], "volumes": [shared]}
    return {"metadata": {"name": "late", "namespace": "default"}, "spec": spec}


async def _request(pool: Pool, plan: str, phase: RequestPhase, *, seconds: float = 240) -> Any:
    """The plan's first request, once it is in this phase."""
    found: list[Any] = []

    async def look() -> bool:
        found[:] = [one for one in await pool.requests(plan) if one.status.phase is phase]
        return bool(found)

    await waiting.poll_until(look, seconds, f"the checkpoint request of {plan} is {phase}")
    return found[0]


@asynccontextmanager
async def _marked(pool: Pool, node: str, mark: dict[str, Any]) -> AsyncIterator[None]:
    """What a person puts on a node and takes away again."""
    (section,) = mark
    taken = {key: dict.fromkeys(value) if isinstance(value, dict) else None for key, value in mark[section].items()}
    path = NODES.path(node)
    await waiting.in_thread(pool.made.cluster.api.patch, path, mark)
    try:
        yield
    finally:
        await waiting.in_thread(pool.made.cluster.api.patch, path, {section: taken})


async def test_a_gpu_that_turns_unhealthy_in_a_node_upgrade_is_named_and_the_node_is_not_released_with_it(
    pool: Pool,
) -> None:
    before = await settled(pool)
    after = other(before)
    revisions = await pool.revisions()
    sick, *others = POOL_NODES
    skip = {"metadata": {"labels": {names.LABEL_SKIP: "true"}}}
    async with _marked(pool, others[0], skip), _marked(pool, others[1], skip):
        async with asyncio.TaskGroup() as beside:
            beside.create_task(_fall_off_the_bus(pool, sick, after))
            plan = await pool.apply(after, watch=False)
            upgrade = await _going_back(pool, plan, sick)
        assert upgrade.status.reason == "NotValid"
        (validated,) = [step for step in upgrade.status.steps if step.name == "Validating"]
        assert "check devices: 1 of 8 with faults: sim-gpu3: marked unhealthy (XID 63)" in validated.result
        node = (await pool.nodes())[sick]
        assert names.TAINT_MAINTENANCE in {one.key for one in node.spec.taints}
        # It is well again before the way back is validated: a reset, or another board.
        await waiting.in_thread(pool.made.cluster.box_node(sick).enter, "rm", f"{RUN_DIRECTORY}/sim/unhealthy")
        await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.PAUSED, seconds=300)
        assert await pool.revisions() == revisions
        await run_command(pool.made.cluster, print, "abort", plan)
        assert (await pool.over(plan)).status.phase is PlanPhase.ABORTED
    await pool.install(before)
    await pool.nothing_left()


async def _going_back(pool: Pool, plan: str, node: str) -> NodeUpgrade:
    """The plan's upgrade to a node, as soon as it goes back."""
    found: list[NodeUpgrade] = []

    async def look() -> bool:
        found[:] = [one for name, one in (await pool.upgrades(plan)).items() if name == node and one.status.reverting]
        return bool(found)

    await waiting.poll_until(look, 240, f"{node} goes back")
    return found[0]


async def _fall_off_the_bus(pool: Pool, node: str, driver: str) -> None:
    """A GPU that is not well from the moment on in which this driver is loaded."""
    box, state = pool.made.cluster.box_node(node), f"{RUN_DIRECTORY}/sim"

    async def loaded() -> bool:
        said = await waiting.in_thread(box.enter, "cat", f"{state}/loaded.json", check=False)
        return f'"version": "{driver}"'.encode() in said.stdout

    await waiting.poll_until(loaded, 240, f"driver {driver} is loaded on {node}")
    await waiting.in_thread(box.enter, "sh", "-c", f"echo sim-gpu3 63 > {state}/unhealthy")
