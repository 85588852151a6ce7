"""What is wrong with a stack itself, on real kubelets: two of them for one node, an image that is gone, a deletion."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.conftest import OUTSIDE, POOL_NODES, Pool, other, settled
from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, DAEMONSETS, GPU_STACKS, NODE_UPGRADES, NODES
from upgrader.core.model.phases import PlanPhase, RequestPhase, is_final
from upgrader.images.registry.client import RegistryClient
from upgrader_dev.demo import stage as stages
from upgrader_dev.demo import waiting

pytestmark = [pytest.mark.e2e]

SYSTEM = "gpu-upgrader-system"


def told(stack: Any, kind: str) -> tuple[str, str, str]:
    """A condition of the stack: status, reason and message."""
    found = (one for one in stack.status.conditions if one.type == kind)
    return next(((one.status, one.reason, one.message) for one in found), ("", "", ""))


# ------------------------------------------------------------------------------- two stacks for one node


async def test_a_node_that_two_stacks_select_is_left_as_it_is_until_it_belongs_to_one(pool: Pool) -> None:
    async with _two_stacks(pool, rack="a", row="1") as (by_rack, by_row):
        both = {"example.org/rack": "a", "example.org/row": "1"}
        _label(pool, both)
        said = "1 node(s) are selected by other stacks too, and no upgrade begins on them: {} by {}"
        for name, rival in ((by_rack, by_row), (by_row, by_rack)):
            overlaps = ("True", "TwoStacks", said.format(OUTSIDE, rival))
            await pool.eventually(GPU_STACKS, name, lambda one, seen=overlaps: told(one, "Overlaps") == seen)
        await pool.looked_at_again()
        assert await _upgrades_outside(pool) == []
        assert await _marks_outside(pool) == {}

        await _select(pool, by_row, row="2")
        await pool.eventually(GPU_STACKS, by_rack, lambda one: one.status.ready == 1, seconds=120)
        assert [one.spec.stack for one in await _upgrades_outside(pool)] == [by_rack]
        for name in (by_rack, by_row):
            await pool.eventually(GPU_STACKS, name, lambda one: told(one, "Overlaps")[0] == "False")
    _label(pool, dict.fromkeys([*both, *await _marks_outside(pool)]))  # another pool's from now on, or nobody's


@asynccontextmanager
async def _two_stacks(pool: Pool, **selected: str) -> AsyncIterator[list[str]]:
    """A stack for each label; they go, with their operands, when it is over."""
    made = [f"by-{key}" for key in selected]
    for name, (key, value) in zip(made, selected.items(), strict=True):
        await _select(pool, name, **{key: value})
    try:
        yield made
    finally:
        for name in made:
            await pool.kube.delete(GPU_STACKS, (await pool.kube.get(GPU_STACKS, name)).metadata)
            await _without_operands(pool, name)


async def _select(pool: Pool, stack: str, **labels: str) -> None:
    body = pool.stack("1.0.0")
    body["metadata"]["name"] = stack
    body["spec"]["nodeSelector"] = {f"example.org/{key}": value for key, value in labels.items()}
    await stages.apply_stack(pool.kube, body)


def _label(pool: Pool, labels: dict[str, str | None]) -> None:
    pool.made.cluster.api.patch(NODES.path(OUTSIDE), {"metadata": {"labels": labels}})


async def _upgrades_outside(pool: Pool) -> list[Any]:
    return [one for one in await pool.kube.list(NODE_UPGRADES) if one.spec.node.name == OUTSIDE]


async def _marks_outside(pool: Pool) -> dict[str, str]:
    node = await pool.kube.get(NODES, OUTSIDE)
    assert [one for one in node.spec.taints if one.key.startswith(names.GROUP)] == []
    return {key: value for key, value in node.metadata.labels.items() if key.startswith(names.GROUP)}


async def _without_operands(pool: Pool, stack: str) -> None:
    async def gone() -> bool:
        return not await pool.kube.list(DAEMONSETS, SYSTEM, labels=f"{names.LABEL_STACK}={stack}")

    await waiting.poll_until(gone, 120, f"the operands of {stack} are gone")


# ------------------------------------------------------------------------------- an operand's image is gone


async def test_an_operand_without_its_image_is_named_with_its_nodes_and_no_job_notices(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("calm")
    upgrades = {one.metadata.name for one in await pool.kube.list(NODE_UPGRADES)}
    registry = pool.made.cluster.registry

    absent = f"{registry}/upgrader/plugin:absent"
    await _change(pool, before, devicePlugin={"image": absent, "resourceName": "nvidia.com/gpu"})
    said = f"{absent} is not in its registry; push it, or correct spec.devicePlugin.image"
    await _told(pool, "Valid", "False", "RevisionNotMade", said)

    image = await _half_removed(registry, pool.made.images.node)
    await _change(pool, before, monitoring={"management": "Managed", "image": image})
    # Each kubelet tries in its own time: the last one may still pull while the first one has given up.
    stack = await pool.eventually(
        GPU_STACKS, "pool", lambda one: all(_why(_monitoring(one), node) for node in POOL_NODES), seconds=120
    )
    assert (_monitoring(stack).state.value, _monitoring(stack).shown) == ("Waiting", "0/3")
    assert told(stack, "OperandsReady")[:2] == ("False", "MonitoringNotReady")
    assert {one.operand.value: one.shown for one in stack.status.operands if one.wanted} == {
        "Driver": "3/3",
        "DevicePlugin": "3/3",
        "Monitoring": "0/3",
    }

    await _change(pool, before, monitoring={"management": "Managed", "image": pool.made.images.simulated_gpus})
    await _told(pool, "OperandsReady", "True", "Ready", "every operand is ready on all its nodes")
    assert _monitoring(await pool.kube.get(GPU_STACKS, "pool")).shown == "3/3"
    await pool.steps("calm", 10)
    assert pool.story("calm").interruptions == 0
    assert {one.metadata.name for one in await pool.kube.list(NODE_UPGRADES)} == upgrades
    await pool.nothing_left()
    await _change(pool, before)
    await pool.eventually(GPU_STACKS, "pool", lambda one: _monitoring(one).shown == "External")


async def _change(pool: Pool, driver: str, **fields: Any) -> None:
    body = pool.stack(driver)
    await stages.apply_stack(pool.kube, body | {"spec": body["spec"] | fields})


async def _told(pool: Pool, kind: str, *wanted: str) -> None:
    await pool.eventually(GPU_STACKS, "pool", lambda one: told(one, kind) == wanted)


def _monitoring(stack: Any) -> Any:
    return next(one for one in stack.status.operands if one.operand.value == "Monitoring")


def _why(operand: Any, node: str) -> bool:
    """Whether a node is named, with the kubelet's word for it."""
    return any(one.startswith(f"{node}: image ") and "ImagePull" in one for one in operand.message.split("; "))


async def _half_removed(registry: str, image: str) -> str:
    """An image that a clean-up has half removed: its name is there still, what it stands for is not."""
    async with RegistryClient(insecure=(registry,)) as client:
        kept = await client.get_manifest(image)
        assert kept is not None
        name = f"{registry}/upgrader/node"
        other_one = json.loads(kept.data) | {"annotations": {"example.org/other": "one"}}
        await client.put_manifest(json.dumps(other_one).encode(), kept.media_type, f"{name}:other")
        inner = await client.get_manifest(f"{name}:other")
        assert inner is not None
        platform = {"architecture": "amd64", "os": "linux"}
        entry = {"mediaType": inner.media_type, "digest": inner.digest, "size": len(inner.data), "platform": platform}
        kind = "application/vnd.oci.image.index.v1+json"
        index = {"schemaVersion": 2, "mediaType": kind, "manifests": [entry]}
        await client.put_manifest(json.dumps(index).encode(), kind, f"{name}:half-removed")
        assert await client.delete(f"{name}@{inner.digest}")
    return f"{name}:half-removed"


# ------------------------------------------------------------------------------- a stack that is deleted


async def test_a_stack_that_is_deleted_while_a_gang_is_asked_leaves_it_alone(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("unasked", members=3, arguments=("--behaviour", "silent"))
    plan = await pool.apply(other(before), watch=False)
    (request,) = await pool.asked(plan, seconds=120)
    await _delete(pool)
    assert (await pool.over(plan)).status.phase is PlanPhase.ABORTED
    done = await pool.kube.get(CHECKPOINT_REQUESTS, request.metadata.name, "default")
    assert done.status.phase is RequestPhase.WITHDRAWN
    await _left_alone(pool)
    await pool.steps("unasked", 10, members=3)
    assert pool.story("unasked").interruptions == 0
    await _again(pool, before)


async def test_a_stack_that_is_deleted_while_a_gang_is_stopped_gets_it_going_again(pool: Pool) -> None:
    before = await settled(pool)
    revisions = await pool.revisions()
    await pool.train("orphaned", members=3)
    plan = await pool.apply(other(before), watch=False)
    await pool.stopped(plan)
    await _delete(pool)
    assert (await pool.over(plan)).status.phase is PlanPhase.ABORTED
    await _left_alone(pool)
    await pool.steps("orphaned", 10, members=3)
    assert (pool.story("orphaned").steps_lost, pool.story("orphaned").interruptions) == (0, 1)
    # All of its nodes went one way: back where nothing was switched off yet, else forward.
    assert len(await pool.revisions()) == 1
    await _again(pool, before if await pool.revisions() == revisions else other(before))


async def _delete(pool: Pool) -> None:
    await pool.kube.delete(GPU_STACKS, (await pool.kube.get(GPU_STACKS, "pool")).metadata)


async def _left_alone(pool: Pool) -> None:
    """No operand is left, no upgrade is open, and nothing is marked."""
    await _without_operands(pool, "pool")
    assert [one for one in await pool.kube.list(NODE_UPGRADES) if not is_final(one.status.phase)] == []
    await pool.nothing_left()


async def _again(pool: Pool, driver: str) -> None:
    """The same stack, made once more over the nodes as they are, has nothing to do there but its operands."""
    upgrades = {one.metadata.name for one in await pool.kube.list(NODE_UPGRADES)}
    await pool.clear()
    await stages.apply_stack(pool.kube, pool.stack(driver))
    await _told(pool, "OperandsReady", "True", "Ready", "every operand is ready on all its nodes")
    stack = await pool.kube.get(GPU_STACKS, "pool")
    assert {one.operand.value: one.shown for one in stack.status.operands if one.wanted} == {
        "Driver": "3/3",
        "DevicePlugin": "3/3",
    }
    await pool.install(driver)
    assert {one.metadata.name for one in await pool.kube.list(NODE_UPGRADES)} <= upgrades
