"""How nodes and gangs come out of an upgrade that went wrong: on one driver, on nodes in service, and counted truly."""

from collections.abc import Sequence

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.workloads.placement import REVISION
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
def rig() -> Rig:
    return Rig()


def members(rig: Rig) -> Sequence[tuple[str, str]]:
    """Where the gang's pods are, and how."""
    return [
        (pod["spec"].get("nodeName", ""), pod["status"].get("phase", ""))
        for pod in rig.cluster.store.copy_all(PODS)
        if pod["metadata"]["labels"].get("job") == "gang"
    ]


def expressions(rig: Rig) -> Sequence[Object]:
    """What the gang's template says about revisions."""
    template = rig.cluster.store.find(JOBS, "gang", "default")["spec"]["template"]["spec"]
    required = template["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [one for term in required["nodeSelectorTerms"] for one in term["matchExpressions"]]


def label(rig: Rig, node: str, name: str) -> str | None:
    return rig.cluster.store.find(NODES, node)["metadata"]["labels"].get(name)


async def test_a_gang_never_returns_to_a_node_that_is_kept_for_a_person(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))

    def fell_off(component: str, pod: Object) -> OrderResult | None:
        broken = component == "validate" and pod["spec"]["nodeName"] == "gpu-1"
        return OrderResult(reason=Reason.DEVICE_FAILED, message="fell off the bus") if broken else None

    rig.fleet.pod_results = fell_off
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    kept = next(one for one in rig.upgrades("up") if one.status.reason == "RevertFailed")
    assert kept.spec.node.name == "gpu-1"
    assert "operands stay off and the taint stays" in kept.status.message
    assert (label(rig, "gpu-1", names.LABEL_OPERANDS), label(rig, "gpu-1", names.LABEL_DRIVER)) == ("off", "none")
    assert "gpu-1" not in {node for node, phase in members(rig) if phase == "Running"}
    assert "fell off the bus" in rig.plan_now("up").status.message


async def test_a_gang_that_waited_too_long_is_restarted_on_nodes_in_service_only(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4)
    for node in ("gpu-2", "gpu-3"):  # upgraded, they would take the gang at once
        rig.cluster.store.change(NODES, node, {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    rig.apply_plan("up", revision, strategy={"maxUnavailable": 16})
    old = label(rig, "gpu-0", REVISION)
    await rig.run_until(
        lambda: NodePhase.UPGRADING in {one.status.phase for one in rig.upgrades("up") if rig.requests()}
    )
    group = {one.spec.node.name for one in rig.upgrades("up") if one.status.phase is NodePhase.UPGRADING}
    rig.cluster.clock.advance(15_000)
    rig.restart()
    await rig.run_until(lambda: RequestPhase.RESTARTING in {one.status.phase for one in rig.requests()}, 60)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    assert not group & {node for node, phase in members(rig) if phase == "Running"}
    assert {one["operator"] for one in expressions(rig)} == {"NotIn", "Exists"}
    revisions = {label(rig, node, REVISION) for node, phase in members(rig) if phase == "Running"}
    assert len(revisions) == 1
    assert revisions <= {old, rig.stack_now().status.update_revision}
    assert "RestartByPassed" in {one.reason for one in rig.plan_now("up").status.failures}


async def test_a_stop_that_was_withdrawn_was_no_interruption(rig: Rig) -> None:
    rig.steps_at_once = 1  # seen in every phase
    rig.apply_plan("up", await start_training(rig), checkpoint={"timeoutSeconds": 30, "retrySeconds": 60})
    await rig.run_until(lambda: RequestPhase.STOPPING in {one.status.phase for one in rig.requests()})
    trainer = rig.fleet.trainers["gang"]
    trainer.answers = lambda pod, request, step: {
        "requestId": request,
        "podUid": pod["metadata"]["uid"],
        "step": step,
        "uri": "/data/x",
        "parked": False,
    }
    rig.fleet._train_jobs()
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == [RequestPhase.WITHDRAWN])
    await rig.run_second()
    assert (trainer.stops, rig.plan_now("up").status.counts.interruptions) == (0, 0)
    assert rig.plan_now("up").status.counts.nodes == 2
    trainer.answers = None
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, trainer.stops, trainer.lost) == (PlanPhase.COMPLETED, 2, 0)  # pods


async def test_a_node_that_was_let_go_keeps_the_revision_that_it_shows(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {REVISION: None}}})
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: NodePhase.DRAINING in {one.status.phase for one in rig.upgrades("up")})
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert label(rig, "gpu-1", REVISION) is None
    rig.assert_nothing_left()


async def test_undoing_goes_back_to_what_the_upgraded_nodes_had(rig: Rig) -> None:
    for version in ("1.0", "2.0", "3.0"):
        rig.put_image(version)
    for number in range(3):
        rig.fleet.add_node(f"gpu-{number}")
    one = rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.cluster.store.change(NODES, "gpu-2", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    two = rig.apply_stack(rig.make_spec("2.0"))
    rig.apply_plan("two", two)
    await rig.run_until(lambda: rig.nodes_on(two) == 2)
    rig.cluster.store.change(UPGRADE_PLANS, "two", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("two"))
    three = rig.apply_stack(rig.make_spec("3.0"))
    rig.apply_plan("three", three)
    consent = {"maxInterruptions": 7, "expendable": ["default/Job/toy"]}
    rig.cluster.store.change(UPGRADE_PLANS, "three", {"spec": {"approval": {"limits": consent}}})
    await rig.run_until(lambda: rig.nodes_on(three) == 2)
    rig.cluster.store.change(UPGRADE_PLANS, "three", {"spec": {"state": "RolledBack"}})
    await rig.run_until(lambda: rig.plan_now("three").status.rollback_plan is not None)
    undo = rig.plan_now(rig.plan_now("three").status.rollback_plan)
    assert undo.spec.target_revision == two
    assert undo.spec.approval is not None
    # The same consent, but nobody is ended a second time.
    assert (undo.spec.approval.limits.max_interruptions, undo.spec.approval.limits.expendable) == (7, [])
    await rig.run_until(lambda: rig.nodes_on(two) == 2)
    assert [label(rig, f"gpu-{number}", REVISION) for number in range(3)] == [two, two, one]
