"""Drift answered by its stack, in virtual time: reported, proposed, approved within limits; damped; never twice."""

import pytest

from tests.support.drifting import (
    KERNEL,
    NEXT,
    asks,
    built,
    condition,
    images_of,
    made_by_recipe,
    plans,
    reason,
    reboots,
)
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, NODES, UPGRADE_PLANS
from upgrader.core.model.phases import PlanPhase
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader_dev.simulated.cluster.rig import STACK, Rig

LIMITS = {"maxInterruptions": 1, "maxLostGpuHours": 50}
QUICK = {"maxUnavailable": "100%", "canary": {"enabled": False}, "waitForCompletionSeconds": 0}


@pytest.fixture
async def rig() -> Rig:
    """Two nodes on driver 1.0, with a gang on both; images of 2.0 are there."""
    made = Rig()
    for number in range(2):
        made.fleet.add_node(f"gpu-{number}")
    made.put_image("1.0")
    made.apply_stack(made.make_spec("1.0"))
    await made.settle()
    made.fleet.add_job("gang", members=2, gpus=8)
    await made.run_until(lambda: made.fleet.trainers["gang"].step > 5)
    return made


async def pass_time(rig: Rig, seconds: int) -> None:
    for _ in range(seconds):
        await rig.run_second()


# ------------------------------------------------------------------------------- Report, Propose, Approve


async def test_drift_is_only_reported_unless_asked_for_more(rig: Rig) -> None:
    rig.put_image("2.0")
    rig.apply_stack(rig.make_spec("2.0"))
    await pass_time(rig, 120)
    assert (plans(rig), condition(rig, "OnDrift")) == ([], None)
    assert rig.stack_now().status.drifted == 2


async def test_a_plan_is_proposed_once_for_drift_that_stays_and_touches_nothing(rig: Rig) -> None:
    rig.put_image("2.0")
    revision = asks(rig, rig.make_spec("2.0"), "Propose", strategy={"maxUnavailable": "50%"}, toleratedFailures=3)
    await pass_time(rig, 59)
    assert (plans(rig), reason(rig, "OnDrift")) == ([], "Unsteady")
    await pass_time(rig, 60)
    (plan,) = plans(rig)
    assert (plan.spec.stack, plan.spec.target_revision, plan.spec.approval) == (STACK, revision, None)
    assert (plan.spec.strategy.max_unavailable, plan.spec.tolerated_failures) == ("50%", 3)
    assert plan.metadata.labels == {names.LABEL_STACK: STACK}
    assert (plan.status.phase, plan.status.reason) == (PlanPhase.PROPOSED, "NotApproved")
    told = f"plan {plan.metadata.name} waits for approval (upgrader approve {plan.metadata.name})"
    assert condition(rig, "OnDrift") == ("True", "Proposed", told)
    assert rig.fleet.trainers["gang"].stops == 0
    rig.restart()
    await pass_time(rig, 120)
    assert len(plans(rig)) == 1


async def test_an_approved_plan_names_the_limits_of_the_stack_and_who_wrote_them(rig: Rig) -> None:
    rig.put_image("2.0")
    revision = asks(rig, rig.make_spec("2.0"), "Approve", strategy=QUICK, limits=LIMITS)
    await rig.run_until(lambda: bool(plans(rig)), 120)
    (plan,) = plans(rig)
    approval = plan.spec.approval
    assert approval is not None
    assert approval.by == f"GpuStack {STACK}, generation {rig.stack_now().metadata.generation}"
    assert (approval.limits.max_interruptions, approval.limits.max_lost_gpu_hours) == (1, 50.0)
    assert (approval.limits.expendable, approval.limits.placement_unguaranteed) == ([], False)
    await rig.run_until(lambda: rig.is_over(plan.metadata.name), 600)
    assert (rig.plan_now(plan.metadata.name).status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert (rig.fleet.trainers["gang"].stops, rig.fleet.trainers["gang"].lost) == (2, 0)
    await rig.run_second()
    assert reason(rig, "OnDrift") == "NoDrift"
    rig.assert_nothing_left()


async def test_limits_are_kept_as_with_any_approval(rig: Rig) -> None:
    rig.put_image("2.0")
    asks(rig, rig.make_spec("2.0"), "Approve", strategy=QUICK, limits={"maxInterruptions": 0})
    await rig.run_until(lambda: bool(plans(rig)), 120)
    await rig.run_until(lambda: plans(rig)[0].status.phase is PlanPhase.PAUSED)
    assert (plans(rig)[0].status.reason, rig.fleet.trainers["gang"].stops) == ("LimitsExceeded", 0)


async def test_without_limits_nothing_is_approved_until_a_person_writes_them(rig: Rig) -> None:
    rig.put_image("2.0")
    asks(rig, rig.make_spec("2.0"), "Approve")
    await rig.run_until(lambda: bool(plans(rig)), 120)
    await rig.run_second()
    (plan,) = plans(rig)
    said = f"plan {plan.metadata.name} waits for approval: spec.driftPlan has no limits, so the stack "
    assert condition(rig, "OnDrift") == ("False", "NoLimits", f"{said}approves nothing")
    assert plan.spec.approval is None
    asks(rig, rig.make_spec("2.0"), "Approve", limits=LIMITS)
    await rig.run_until(lambda: plans(rig)[0].status.phase is PlanPhase.RUNNING)
    assert len(plans(rig)) == 1


async def test_a_proposal_is_approved_as_the_stack_wants_its_plans_by_then(rig: Rig) -> None:
    """Windows that came after the proposal count: nobody agreed to a rollout without them."""
    rig.put_image("2.0")
    asks(rig, rig.make_spec("2.0"), "Propose", strategy=QUICK)
    await rig.run_until(lambda: bool(plans(rig)), 120)
    later = QUICK | {"maxUnavailable": "50%", "windows": [{"days": ["Sat", "Sun"], "start": "22:00"}]}
    asks(rig, rig.make_spec("2.0"), "Approve", strategy=later, limits=LIMITS, toleratedFailures=2)
    await rig.run_until(lambda: plans(rig)[0].spec.approval is not None)
    (plan,) = plans(rig)
    assert (plan.spec.strategy.max_unavailable, plan.spec.tolerated_failures) == ("50%", 2)
    assert [one.days for one in plan.spec.strategy.windows] == [("Sat", "Sun")]


async def test_until_the_status_names_the_revision_nothing_is_said_to_be_approved(rig: Rig) -> None:
    """The stack goes to and fro: its own plan for the revision is there, but plans still see the one between."""
    rig.put_image("2.0")
    rig.put_image("3.0")
    asks(rig, rig.make_spec("2.0"), "Propose", strategy=QUICK)
    await rig.run_until(lambda: bool(plans(rig)), 120)
    revision = rig.stack_now().status.update_revision
    asks(rig, rig.make_spec("2.0"), "Approve", strategy=QUICK, limits=LIMITS)
    rig.cluster.store.change(GPU_STACKS, STACK, {"status": {"updateRevision": "between"}})
    await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    said = f"revision {revision} is not in the stack's status yet; no plan is created, approved or started until then"
    assert condition(rig, "OnDrift") == ("False", "RevisionNotWritten", said)
    assert plans(rig)[0].spec.approval is None
    await rig.run_until(lambda: plans(rig)[0].spec.approval is not None)
    await rig.run_until(lambda: rig.nodes_on(revision) == 2, 600)


async def test_a_proposal_is_superseded_when_the_stack_asks_for_another_revision(rig: Rig) -> None:
    rig.put_image("2.0")
    rig.put_image("3.0")
    asks(rig, rig.make_spec("2.0"), "Propose")
    await rig.run_until(lambda: bool(plans(rig)), 120)
    revision = asks(rig, rig.make_spec("3.0"), "Propose")
    await rig.run_until(lambda: len(plans(rig)) == 2, 120)
    first, second = plans(rig)
    assert (first.status.phase, first.status.reason) == (PlanPhase.SUPERSEDED, "StackChanged")
    assert (second.status.phase, second.spec.target_revision) == (PlanPhase.PROPOSED, revision)


async def test_a_proposal_is_superseded_when_nothing_differs_any_more(rig: Rig) -> None:
    rig.put_image("2.0")
    asks(rig, rig.make_spec("2.0"), "Propose")
    await rig.run_until(lambda: bool(plans(rig)), 120)
    asks(rig, rig.make_spec("1.0"), "Propose")
    await rig.run_until(lambda: plans(rig)[0].status.phase is PlanPhase.SUPERSEDED)
    await pass_time(rig, 120)
    assert (len(plans(rig)), reason(rig, "OnDrift")) == (1, "NoDrift")


async def test_no_plan_is_made_beside_one_that_has_not_ended(rig: Rig) -> None:
    rig.put_image("2.0")
    revision = asks(rig, rig.make_spec("2.0"), "Propose")
    rig.cluster.store.put(
        UPGRADE_PLANS, {"metadata": {"name": "mine"}, "spec": {"stack": STACK, "targetRevision": revision}}
    )
    await pass_time(rig, 120)
    assert ([one.metadata.name for one in plans(rig)], reason(rig, "OnDrift")) == (["mine"], "AnotherPlan")


async def test_no_plan_is_made_towards_a_revision_that_was_rolled_back(rig: Rig) -> None:
    old = rig.stack_now().status.update_revision
    assert old is not None
    rig.put_image("2.0")
    revision = asks(rig, rig.make_spec("2.0"), "Report")
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    rig.apply_plan("back", old)
    await rig.run_until(lambda: rig.is_over("back"))
    asks(rig, rig.make_spec("2.0"), "Approve", limits=LIMITS)
    await pass_time(rig, 180)
    assert [one.metadata.name for one in plans(rig)] == ["up", "back"]
    assert reason(rig, "OnDrift") == "BlockedRevision"
    assert rig.stack_now().status.blocked_revision == revision


async def test_a_rollback_that_a_person_aborted_is_not_undone_by_a_plan_forward(rig: Rig) -> None:
    old = rig.stack_now().status.update_revision
    assert old is not None
    rig.put_image("2.0")
    rig.apply_plan("up", asks(rig, rig.make_spec("2.0"), "Report"))
    await rig.run_until(lambda: rig.is_over("up"))
    asks(rig, rig.make_spec("2.0"), "Approve", limits=LIMITS)
    rig.apply_plan("back", old, strategy={"maxUnavailable": 8})
    await rig.run_until(lambda: rig.plan_now("back").status.phase is PlanPhase.RUNNING)
    rig.cluster.store.change(UPGRADE_PLANS, "back", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("back"), 1500)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_REVISION: old}}})
    await pass_time(rig, 120)
    assert ([one.metadata.name for one in plans(rig)], reason(rig, "OnDrift")) == (["up", "back"], "BlockedRevision")


async def test_a_proposal_that_a_person_aborted_is_not_made_again(rig: Rig) -> None:
    rig.put_image("2.0")
    asks(rig, rig.make_spec("2.0"), "Propose")
    await rig.run_until(lambda: bool(plans(rig)), 120)
    name = plans(rig)[0].metadata.name
    rig.cluster.store.change(UPGRADE_PLANS, name, {"spec": {"state": "Aborted"}})
    await pass_time(rig, 180)
    said = f"plan {name} to this revision ended Aborted: delete it to get a new plan"
    assert condition(rig, "OnDrift") == ("False", "PlanEnded", said)
    assert len(plans(rig)) == 1
    rig.cluster.store.remove(UPGRADE_PLANS, name)
    await rig.run_until(lambda: bool(plans(rig)), 120)


@pytest.mark.parametrize("acted", [False, True], ids=["before", "after"])
async def test_a_controller_that_dies_while_it_makes_a_plan_makes_one(rig: Rig, acted) -> None:
    rig.put_image("2.0")
    asks(rig, rig.make_spec("2.0"), "Propose")
    await pass_time(rig, 50)
    rig.cluster.before_write = lambda write: (
        rig.cluster.fail_at(1, ConnectionError("killed"), acted=acted) if write.kind == "UpgradePlan" else None
    )
    with pytest.raises(ConnectionError):
        await pass_time(rig, 30)
    rig.cluster.before_write = None
    rig.restart()
    await pass_time(rig, 150)
    assert len(plans(rig)) == 1


# ------------------------------------------------------------------------------- images first


async def test_images_are_made_before_the_plan_which_waits_for_them() -> None:
    rig = await recipe_pool()
    asks(rig, rig.make_spec("2.0"), "Propose")
    await pass_time(rig, 120)
    assert (images_of(rig, KERNEL), plans(rig)) == ([("1.0", "sim", "Ready"), ("2.0", "sim", "Pending")], [])
    status, why, message = condition(rig, "OnDrift") or ("", "", "")
    assert (status, why) == ("False", "WaitingForImages")
    assert message.startswith(f"There is no Ready DriverImage for sim 2.0 on kernel {KERNEL}. DriverImage ")
    built(rig, "2.0", KERNEL)
    await rig.run_until(lambda: bool(plans(rig)), 120)
    assert images_of(rig, KERNEL)[1] == ("2.0", "sim", "Ready")


async def test_with_no_image_and_none_on_its_way_there_is_no_plan(rig: Rig) -> None:
    asks(rig, rig.make_spec("2.0"), "Propose")
    await pass_time(rig, 120)
    said = (
        f"no node is drained. There is no Ready DriverImage for sim 2.0 on kernel {KERNEL}. "
        "Alternatives: driver sim 1.0 for this kernel."
    )
    assert (plans(rig), condition(rig, "OnDrift")) == ([], ("False", "NoDriverImage", said))
    assert images_of(rig, KERNEL) == [("1.0", "", "Ready")]  # nobody says how images of this driver are made


async def test_an_image_that_cannot_be_built_keeps_no_other_node() -> None:
    rig = await recipe_pool(nodes=("gpu-0",))
    rig.fleet.add_node("gpu-9", kernel=NEXT)
    made_by_recipe(rig, "1.0", NEXT)
    await rig.settle()
    for kernel, phase in ((KERNEL, "Ready"), (NEXT, "Unbuildable")):
        made_by_recipe(rig, "2.0", kernel)
        if phase == "Unbuildable":
            status = {"phase": phase, "message": "compile: no", "retryAt": "2027-01-01T00:00:00Z"}
            rig.cluster.store.change(DRIVER_IMAGES, f"made-2.0-{kernel}", {"status": status})
    revision = asks(rig, rig.make_spec("2.0"), "Approve", strategy=QUICK, limits=LIMITS)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1, 300)
    (blocker,) = plans(rig)[0].status.blockers
    assert (blocker.subject, blocker.reason) == ("gpu-9", "NoDriverImage")


# ------------------------------------------------------------------------------- what does not stay causes nothing


async def test_drift_that_flaps_makes_no_plan(rig: Rig) -> None:
    rig.put_image("2.0")
    asks(rig, rig.make_spec("1.0"), "Propose")
    await rig.run_second()
    label = rig.cluster.store.find(NODES, "gpu-0")["metadata"]["labels"][names.LABEL_REVISION]
    for number in range(40):  # somebody takes a label away and puts it back
        value = None if number % 2 else label
        rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_REVISION: value}}})
        await pass_time(rig, 10)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_REVISION: None}}})
    await pass_time(rig, 90)
    assert (plans(rig), reason(rig, "OnDrift")) == ([], "Unsteady")
    await rig.run_until(lambda: bool(plans(rig)), 700)


async def test_a_label_that_flaps_is_reported_once_and_causes_nothing(rig: Rig) -> None:
    asks(rig, rig.make_spec("1.0"), "Approve", limits=LIMITS)
    await pass_time(rig, 5)
    before = len(rig.cluster.writes)
    for number in range(60):
        value = NEXT if number % 2 else KERNEL
        rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_KERNEL_NFD: value}}})
        await pass_time(rig, 10)
    said = "1 node(s) (gpu-0): labels change repeatedly; the kubelet's values are used, and no upgrade begins"
    assert condition(rig, "LabelsAgree") == ("False", "Flapping", said)
    assert [(one.kind, one.subresource) for one in rig.cluster.writes[before:]] == [("GpuStack", "status")]
    assert (plans(rig), rig.fleet.trainers["gang"].stops) == ([], 0)
    await pass_time(rig, 620)
    assert condition(rig, "LabelsAgree") == ("False", "Disagree", condition(rig, "LabelsAgree")[2])
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_KERNEL_NFD: KERNEL}}})
    await pass_time(rig, 620)
    assert condition(rig, "LabelsAgree") == ("True", "Agree", "no label disagrees")


async def test_a_label_that_disagrees_for_a_moment_is_not_reported(rig: Rig) -> None:
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_KERNEL_NFD: NEXT}}})
    await pass_time(rig, 30)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_KERNEL_NFD: KERNEL}}})
    await pass_time(rig, 120)
    assert condition(rig, "LabelsAgree") is None


async def recipe_pool(nodes: tuple[str, ...] = ("gpu-0", "gpu-1")) -> Rig:
    """A pool whose driver is made by a recipe, so that images of it can be asked for."""
    rig = Rig()
    for name in nodes:
        rig.fleet.add_node(name)
    made_by_recipe(rig, "1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    return rig


async def test_a_node_with_a_new_kernel_is_brought_back_before_anything_is_proposed_for_it() -> None:
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    for version in ("1.0", "2.0"):
        for kernel in (KERNEL, NEXT):
            rig.put_image(version, kernel=kernel)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    revision = asks(rig, rig.make_spec("2.0"), "Approve", strategy=QUICK, limits=LIMITS)
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: rig.nodes_on(revision) == 1, 300)
    ended = [(one.spec.reason.value, one.spec.target.driver_version, one.spec.target.kernel) for one in rig.upgrades()]
    assert ended == [("Install", "1.0", KERNEL), ("Repair", "1.0", NEXT)]
    (plan,) = plans(rig)
    (upgrade,) = rig.upgrades(plan.metadata.name)
    assert (upgrade.spec.source.driver_version, upgrade.spec.target.driver_version) == ("1.0", "2.0")
