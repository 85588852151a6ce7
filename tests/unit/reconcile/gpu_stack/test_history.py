"""Ended plans and old revisions go when there are more than a stack keeps; nothing that is needed does."""

import pytest

from upgrader.api import names
from upgrader.api.resources import CONTROLLER_REVISIONS, NODE_UPGRADES, NODES, UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.reconcile.observe.revisions import list_revisions as of_stack
from upgrader_dev.simulated.cluster.rig import STACK, Rig

VERSIONS = ("1.0", "2.0", "3.0", "4.0", "5.0")


@pytest.fixture
async def rig() -> Rig:
    rig = Rig()
    for version in VERSIONS:
        rig.put_image(version)
    for number in range(2):
        rig.fleet.add_node(f"gpu-{number}")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    return rig


async def rollout(rig: Rig, version: str, *, limit: int = 2) -> str:
    """One plan to its end; gives its revision."""
    revision = rig.apply_stack(rig.make_spec(version) | {"historyLimit": limit})
    rig.apply_plan(f"to-{version}", revision)
    await rig.run_until(lambda: rig.is_over(f"to-{version}"))
    for _ in range(5):
        await rig.run_second()
    return revision


def plans(rig: Rig) -> list[str]:
    return sorted(one["metadata"]["name"] for one in rig.cluster.store.copy_all(UPGRADE_PLANS))


def revisions(rig: Rig) -> set[str]:
    kept = rig.cluster.store.copy_all(CONTROLLER_REVISIONS)
    return {one["metadata"]["name"].removeprefix(f"{STACK}-") for one in kept}


async def test_the_newest_plans_stay_with_their_revisions(rig: Rig) -> None:
    made = [await rollout(rig, version) for version in VERSIONS[1:]]
    assert plans(rig) == ["to-4.0", "to-5.0"]
    assert revisions(rig) == set(made[-2:])
    assert rig.nodes_on(made[-1]) == 2


async def test_the_revision_before_and_those_of_nodes_stay_whatever_the_limit_is(rig: Rig) -> None:
    (first,) = revisions(rig)
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    made = []
    for version in VERSIONS[1:4]:
        made.append(rig.apply_stack(rig.make_spec(version) | {"historyLimit": 1}))
        rig.apply_plan(f"to-{version}", made[-1])
        await rig.run_until(lambda revision=made[-1]: rig.nodes_on(revision) == 1)
        rig.cluster.store.change(UPGRADE_PLANS, f"to-{version}", {"spec": {"state": "Aborted"}})
        await rig.run_until(lambda name=f"to-{version}": rig.is_over(name))
        for _ in range(5):
            await rig.run_second()
    assert plans(rig) == ["to-4.0"]
    assert revisions(rig) == {first, *made[-2:]}


async def test_a_plan_whose_upgrade_left_a_mark_on_its_node_stays(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("2.0") | {"historyLimit": 1})
    rig.fleet.pod_results = lambda component, pod: (
        OrderResult(reason=Reason.DEVICE_FAILED, message="fell off the bus")
        if component == "validate" and pod["spec"]["nodeName"] == "gpu-1"
        else None
    )
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("up"))
    rig.fleet.pod_results = lambda _component, _pod: None
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    for version in ("3.0", "4.0"):
        rig.apply_plan(f"to-{version}", rig.apply_stack(rig.make_spec(version) | {"historyLimit": 1}))
        await rig.run_until(lambda: NodePhase.SUCCEEDED in {one.status.phase for one in rig.upgrades(f"to-{version}")})  # noqa: B023
        rig.cluster.store.change(UPGRADE_PLANS, f"to-{version}", {"spec": {"state": "Aborted"}})
        await rig.run_until(lambda: rig.is_over(f"to-{version}"))  # noqa: B023
        for _ in range(5):
            await rig.run_second()
    assert plans(rig) == ["to-4.0", "up"]
    assert [one.spec.node.name for one in rig.upgrades("up") if one.status.reason == "RevertFailed"] == ["gpu-1"]


async def test_a_rollback_that_blocks_a_revision_is_remembered(rig: Rig) -> None:
    (first,) = revisions(rig)
    revision = await rollout(rig, "2.0", limit=1)
    rig.apply_plan("back", first)
    await rig.run_until(lambda: rig.is_over("back"))
    for number in range(3):
        rig.apply_plan(f"again-{number}", first)
        await rig.run_until(lambda name=f"again-{number}": rig.is_over(name))
        for _ in range(3):
            await rig.run_second()
    assert rig.stack_now().status.blocked_revision == revision
    assert "back" in plans(rig) or "again-2" in plans(rig)
    assert len(list(rig.cluster.store.copy_all(NODE_UPGRADES))) >= 2


async def test_what_a_daemonset_keeps_of_its_own_counts_for_nothing_and_stays(rig: Rig) -> None:
    """A DaemonSet's revisions have its pods' labels, among them the stack's; seen on a real cluster."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "driver-x", "uid": "ds", "controller": True}
    other_revisions = [f"driver-x-{number}" for number in range(5)]
    for name in other_revisions:
        rig.cluster.store.add(
            CONTROLLER_REVISIONS,
            {
                "metadata": {
                    "name": name,
                    "namespace": rig.context.stack.namespace,
                    "labels": {names.LABEL_STACK: STACK},
                    "ownerReferences": [owner],
                },
                "data": {"spec": {}},
                "revision": 7,
            },
        )
    first = revisions(rig) - set(other_revisions)
    made = [await rollout(rig, version, limit=3) for version in VERSIONS[1:3]]
    assert revisions(rig) == {*other_revisions, *first, *made}
    assert [one.revision for one in await of_stack(rig.context, STACK)] == [1, 2, 3]
