"""A node that does not come back from its reboot, in virtual time: it holds, the budget counts it, the rest goes on."""

import pytest

from tests.support.drifting import NEXT, asks, plans, reboots
from upgrader.api.resources import JOBS, NODE_UPGRADES, NODES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader_dev.simulated.cluster.rig import Rig


def ready(rig: Rig, name: str, status: str) -> None:
    rig.cluster.store.change(NODES, name, {"status": {"conditions": [{"type": "Ready", "status": status}]}})


def dead(rig: Rig) -> None:
    """A kubelet that says nothing: whatever its pods do, the API server does not learn of it."""
    for kind in (JOBS, PODS):
        for one in list(rig.cluster.store.copy_all(kind)):
            meta = one["metadata"]
            if meta.get("labels", {}).get("gpu-upgrader.io/component") == "upgrade":
                status = {"phase": "Running", "containerStatuses": [], "conditions": [], "failed": 0, "succeeded": 0}
                rig.cluster.store.change(kind, meta["name"], {"status": status}, meta["namespace"])


@pytest.fixture
async def rig() -> Rig:
    """Three idle nodes on driver 1.0."""
    made = Rig()
    for number in range(3):
        made.fleet.add_node(f"gpu-{number}")
    made.put_image("1.0")
    made.put_image("2.0")
    made.apply_stack(made.make_spec("1.0"))
    await made.settle()
    return made


async def test_it_is_blocked_and_takes_its_part_of_the_budget_until_it_is_back(rig: Rig) -> None:
    for version in ("1.0", "2.0"):
        rig.put_image(version, kernel=NEXT)
    revision = rig.apply_stack(rig.make_spec("2.0"))
    ready(rig, "gpu-0", "Unknown")
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 8})
    for _ in range(60):
        await rig.run_second()
    blockers = {one.subject: one.reason for one in rig.plan_now("up").status.blockers}
    assert (rig.nodes_on(revision), blockers["gpu-0"]) == (0, "NodeNotReady")
    assert {one.reason for one in rig.plan_now("up").status.blockers} == {"NodeNotReady", "BudgetTaken"}
    ready(rig, "gpu-0", "True")
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: rig.is_over("up"), 600)
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 3)
    lone = [(one.spec.node.name, one.spec.target.kernel) for one in rig.upgrades() if one.spec.reason == "Repair"]
    assert lone == [("gpu-0", NEXT)]


async def test_with_room_in_the_budget_the_others_are_upgraded(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("2.0"))
    ready(rig, "gpu-0", "Unknown")
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    await rig.run_until(lambda: rig.nodes_on(revision) == 2, 300)
    assert [(one.subject, one.reason) for one in rig.plan_now("up").status.blockers] == [("gpu-0", "NodeNotReady")]
    assert rig.plan_now("up").status.phase is PlanPhase.RUNNING


async def test_a_node_that_goes_away_in_its_upgrade_is_given_up_at_its_deadlines_and_kept_apart(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("2.0"))
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 8})
    await rig.run_until(lambda: any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("up")))
    (upgrade,) = [one for one in rig.upgrades("up") if one.status.phase is NodePhase.UPGRADING]
    name = upgrade.spec.node.name
    ready(rig, name, "Unknown")

    rig.others.append(lambda: dead(rig))
    await rig.run_until(lambda: any(one.status.phase is NodePhase.FAILED for one in rig.upgrades("up")), 6000, stride=5)
    (failed,) = [one for one in rig.upgrades("up") if one.status.phase is NodePhase.FAILED]
    assert (failed.spec.node.name, failed.status.reason) == (name, "RevertFailed")
    for _ in range(60):
        await rig.run_second()
    node = rig.cluster.store.find(NODES, name)
    assert [one["key"] for one in node["spec"]["taints"]] == ["gpu-upgrader.io/maintenance"]
    assert (rig.plan_now("up").status.phase, rig.plan_now("up").status.reason) == (PlanPhase.PAUSED, "TooManyFailures")
    assert rig.nodes_on(revision) == 0  # its GPUs are all that may be missing


async def test_a_node_that_is_away_makes_its_stack_propose_nothing_new(rig: Rig) -> None:
    asks(rig, rig.make_spec("1.0"), "Propose")
    ready(rig, "gpu-0", "Unknown")
    for _ in range(120):
        await rig.run_second()
    assert plans(rig) == []


async def test_one_that_does_not_come_back_from_the_reboot_of_its_upgrade_is_given_up_and_counted_on(rig: Rig) -> None:
    """Time-out, hold, and the budget: nothing else is begun while its GPUs are all that may be missing."""
    for version in ("1.0", "2.0"):
        rig.put_image(version, kernel=NEXT)
    rig.fleet.shows_boot_after = 10**9
    reboot = {"kernel": NEXT, "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}
    revision = rig.apply_stack(rig.make_spec("2.0") | {"reboot": reboot})
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 8})
    await rig.run_until(lambda: len(rig.fleet.reboots) == 1)
    ((name, _),) = rig.fleet.reboots
    ready(rig, name, "Unknown")
    rig.others.append(lambda: dead(rig))
    await rig.run_until(lambda: any(one.status.phase is NodePhase.FAILED for one in rig.upgrades("up")), 9000, stride=5)
    (failed,) = [one for one in rig.upgrades("up") if one.status.phase is NodePhase.FAILED]
    assert (failed.spec.node.name, failed.status.reason) == (name, "RevertFailed")
    late = [one.result for one in failed.status.steps if "exceeded its deadline" in one.result]
    away = f"the node is not Ready: it has not returned from its reboot into kernel {NEXT}"
    assert late[0] == f"Upgrading exceeded its deadline: {away}; reverting"
    await rig.run_until(lambda: rig.plan_now("up").status.reason == "TooManyFailures", 60)
    # A person goes on: the node is blocked, and its GPUs are the whole budget.
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"toleratedFailures": 1}})
    for _ in range(120):
        await rig.run_second()
    assert ([one for one in rig.fleet.reboots if one[0] != name], rig.nodes_on(revision)) == ([], 0)
    blockers = {one.reason for one in rig.plan_now("up").status.blockers}
    assert "BudgetTaken" in blockers, rig.describe_state()
    assert rig.plan_now("up").status.phase is PlanPhase.RUNNING
    await the_way_out(rig, name, failed.metadata.name, revision)


async def the_way_out(rig: Rig, name: str, upgrade: str, revision: str) -> None:
    """It is switched on, and a person has it released: it is installed anew, and the plan goes on with the others."""
    rig.others.clear()
    for kind in (JOBS, PODS):  # their own deadlines have passed
        for one in list(rig.cluster.store.copy_all(kind)):
            if one["metadata"].get("labels", {}).get("gpu-upgrader.io/component") == "upgrade":
                rig.cluster.store.remove(kind, one["metadata"]["name"], one["metadata"]["namespace"])
    reboots(rig, name, boot="boot-2")
    ready(rig, name, "True")
    for _ in range(30):
        await rig.run_second()
    assert rig.nodes_on(revision) == 0
    rig.fleet.shows_boot_after = 5
    order = {"step": "Failed", "by": "ann", "at": "2026-01-01T00:00:00Z", "reason": "it was switched on"}
    rig.cluster.store.change(NODE_UPGRADES, upgrade, {"spec": {"force": [order]}})
    await rig.run_until(lambda: rig.is_over("up"), 1500)
    status = rig.plan_now("up").status
    said = "ended with 1 failure(s), see status.failures"
    assert (status.phase, status.message, rig.nodes_on(revision)) == (PlanPhase.FAILED, said, 3)
    rig.assert_nothing_left()
