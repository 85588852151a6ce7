"""approve, pause, resume, abort, rollback: what people say to a plan, and what comes of it."""

import asyncio

import pytest

from tests.support.terminal import upgrader
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.rig import STACK


@pytest.fixture
def plan(rig, forecast_file):
    """Name of a plan that was just started."""
    assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
    (name,) = (one["metadata"]["name"] for one in rig.cluster.store.copy_all(UPGRADE_PLANS))
    return name


def until(rig, done):
    asyncio.run(rig.run_until(done))


def batches(rig, plan):
    return len(rig.plan_now(plan).status.batches)


def said(rig, *words, code=0):
    ended = upgrader(rig, *words)
    assert ended.exit_code == code, ended.output
    return ended.stdout.strip() if code == 0 else ended.stderr


def test_a_proposed_plan_waits_until_it_is_approved(rig, plan):
    rig.cluster.store.change(UPGRADE_PLANS, plan, {"spec": {"approval": None}})
    until(rig, lambda: rig.plan_now(plan).status.message.startswith("waiting for approval"))
    answer = said(rig, "approve", "--auto-approve", "--approved-by", "sre@example")
    approval = rig.plan_now(plan).spec.approval
    assert approval.by == "sre@example"
    assert answer == (
        f"plan {plan} is approved by sre@example: at most 2 gangs are stopped and "
        f"{approval.limits.max_lost_gpu_hours:.1f} GPU-hours lost in all"
    )
    until(rig, lambda: rig.is_over(plan))
    assert rig.plan_now(plan).status.phase is PlanPhase.COMPLETED


def test_an_approval_may_allow_more(rig, plan):
    until(rig, lambda: rig.plan_now(plan).status.phase is PlanPhase.RUNNING)
    answer = said(rig, "approve", "--auto-approve", "--expendable", "solo", "--max-lost-gpu-hours", "12")
    assert answer.endswith("12.0 GPU-hours lost in all; default/Job/solo may be ended without a checkpoint")
    limits = rig.plan_now(plan).spec.approval.limits
    assert (limits.expendable, limits.max_lost_gpu_hours) == (["default/Job/solo"], 12.0)
    assert "gang not found" in said(rig, "approve", "--auto-approve", "--expendable", "nobody", code=1)


def test_a_plan_that_lost_more_than_was_agreed_asks_again(rig, plan):
    rig.cluster.store.change(UPGRADE_PLANS, plan, {"spec": {"approval": {"limits": {"maxLostGpuHours": 0}}}})
    until(rig, lambda: rig.plan_now(plan).status.phase is PlanPhase.PAUSED)
    assert rig.plan_now(plan).status.reason == "LimitsExceeded"
    assert rig.plan_now(plan).status.batches == []
    said(rig, "approve", "--auto-approve")
    until(rig, lambda: rig.is_over(plan))
    assert rig.plan_now(plan).status.phase is PlanPhase.COMPLETED


def test_an_approval_is_asked_for(rig, plan):
    asyncio.run(rig.run_second())
    before = rig.plan_now(plan).spec
    said(rig, "approve", code=64)
    assert rig.plan_now(plan).spec == before


def test_more_interruptions_than_approved_wait_for_another_approval(rig, plan):
    rig.cluster.store.change(UPGRADE_PLANS, plan, {"spec": {"approval": {"limits": {"maxInterruptions": 1}}}})
    ended = upgrader(rig, "status", "--watch")
    assert ended.exit_code == 4, ended.output
    assert f"`upgrader approve {plan}`" in ended.stderr
    assert rig.plan_now(plan).status.counts.interruptions == 1
    said(rig, "approve", "--auto-approve")
    assert upgrader(rig, "status", "--watch").exit_code == 0
    assert rig.plan_now(plan).status.counts.interruptions == 2


def test_pause_lets_the_batch_end_and_resume_goes_on(rig, plan):
    until(rig, lambda: batches(rig, plan) == 1)
    assert said(rig, "pause") == f"plan {plan} is paused; the current batch is completed"
    for _ in range(60):
        asyncio.run(rig.run_second())
    assert batches(rig, plan) == 1
    assert rig.plan_now(plan).status.phase is PlanPhase.PAUSED
    assert rig.plan_now(plan).status.batches[0].ended_at is not None
    assert said(rig, "resume") == f"plan {plan} is resumed"
    until(rig, lambda: rig.is_over(plan))
    assert rig.plan_now(plan).status.phase is PlanPhase.COMPLETED


def test_resume_tolerates_what_has_failed(rig, plan):
    failures = [{"subject": "gpu-0", "reason": "UpgradeFailed", "message": "no"}] * 3
    rig.cluster.store.change(UPGRADE_PLANS, plan, {"status": {"failures": failures}})
    assert said(rig, "resume") == f"plan {plan} is resumed; 3 failures are tolerated"
    assert rig.plan_now(plan).spec.tolerated_failures == 3


def test_abort_while_a_gang_is_parked_lets_it_train_on(rig, plan):
    until(rig, lambda: any(one.status.phase is RequestPhase.PARKED for one in rig.requests()))
    said(rig, "abort")
    until(rig, lambda: rig.is_over(plan))
    assert rig.plan_now(plan).status.phase is PlanPhase.ABORTED
    assert rig.fleet.trainers["gang"].stops == 0
    rig.assert_nothing_left()


def test_an_abort_cannot_be_taken_back(rig, plan):
    until(rig, lambda: batches(rig, plan) == 1)
    said(rig, "abort")
    until(rig, lambda: rig.is_over(plan))
    assert f"plan {plan} has ended (Aborted)" in said(rig, "resume", plan, code=1)


def test_abort_and_undo_brings_everything_back(rig, plan):
    until(rig, lambda: batches(rig, plan) == 2)
    said(rig, "abort", "--undo")
    before = rig.plan_now(plan).status.revisions_left[-1]
    until(rig, lambda: rig.plan_now(plan).status.rollback_plan is not None)
    back = rig.plan_now(plan).status.rollback_plan
    until(rig, lambda: rig.is_over(back))
    assert rig.nodes_on(before) == 4
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


def test_rollback_of_a_finished_rollout(rig, plan):
    before = rig.nodes()[0]["metadata"]["labels"]["gpu-upgrader.io/revision"]
    until(rig, lambda: rig.is_over(plan))
    assert rig.nodes_on(before) == 0
    assert said(rig, "rollback", "--auto-approve").endswith(f"rolls the nodes back to revision {before}")
    assert upgrader(rig, "status", "--watch").exit_code == 0
    assert rig.nodes_on(before) == 4
    assert rig.stack_now().status.blocked_revision == rig.stack_now().status.update_revision


def test_rollback_in_the_middle_aborts_the_plan_first(rig, plan):
    before = rig.nodes()[0]["metadata"]["labels"]["gpu-upgrader.io/revision"]
    until(rig, lambda: any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades(plan)))
    sentence = said(rig, "rollback", "--auto-approve", "--to", before)
    assert sentence.endswith(f"after plan {plan} is aborted")
    back = sentence.split()[1]
    until(rig, lambda: rig.is_over(back))
    assert rig.plan_now(plan).status.phase is PlanPhase.ABORTED
    assert rig.plan_now(back).status.phase is PlanPhase.COMPLETED
    assert rig.nodes_on(before) == 4
    rig.assert_nothing_left()


def test_rollback_to_nothing(rig):
    assert "has no earlier revision" in said(rig, "rollback", "--auto-approve", "--stack", STACK, code=1)
    assert "not found" in said(rig, "rollback", "--auto-approve", "--to", "0123456789", code=1)


def test_a_plan_must_be_named_where_none_is_open(rig):
    assert "a plan must be specified" in said(rig, "pause", code=1)


def test_a_plan_that_changes_meanwhile_is_read_again(rig, plan):
    rig.cluster.before_write = touching(rig, plan)
    assert said(rig, "pause").startswith(f"plan {plan} ")
    assert rig.plan_now(plan).spec.state.value == "Paused"


def touching(rig, plan):
    """The controller writes the plan's status right before our first write."""
    left = [1]

    def touch(write):
        if write.kind == "UpgradePlan" and left:
            left.clear()
            rig.cluster.store.change(UPGRADE_PLANS, plan, {"status": {"message": "something new"}})

    return touch
