"""The laws of plans, on plans of every sort: each test is one sentence."""

from datetime import timedelta

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st

from upgrader.core.model.phases import (
    DesiredState,
    NodePhase,
    OnFailure,
    PlanPhase,
    RequestPhase,
    is_final,
    transition_of,
)
from upgrader.core.upgrade_plan import plan_machine
from upgrader.core.upgrade_plan.plan_machine import (
    UNDER_WAY,
    PlanView,
    RequestSummary,
    Rival,
    Trouble,
    UpgradeFacts,
    decide,
    goes_first,
    is_quiet,
)
from upgrader.core.upgrade_plan.plan_state import Canaries, NextBatch, PlanLosses
from upgrader_dev.simulated.cluster.ports import START

P = PlanPhase
REVISIONS = st.sampled_from(("old", "new", "other"))
COUNTS = st.integers(0, 2)

TIMES = st.sampled_from((None, None, *(START + timedelta(seconds=seconds) for seconds in (-1, 0, 1, 600))))
NEXT = st.builds(NextBatch, interruptions=COUNTS, starts_at=TIMES, waits_for=st.sampled_from(("", "the window")))
LOSSES = st.builds(
    PlanLosses,
    actual=st.sampled_from((0.0, 1.0)),
    expected=st.sampled_from((0.0, 1.0)),
    approved=st.sampled_from((None, None, 0.0, 1.5, 2.0)),
)
CANARIES = st.builds(
    Canaries,
    enabled=st.booleans(),
    batches=st.sampled_from((frozenset(), frozenset({1}))),
    soak_seconds=st.sampled_from((0, 600)),
    soak_until=TIMES,
    unwell=st.sampled_from(((), (), (Trouble(subject="a", reason="CanaryUnwell", message="is not Ready"),))),
)
UPGRADES = st.builds(
    UpgradeFacts,
    name=st.just("v"),
    node=st.sampled_from(("a", "b")),
    batch=st.just(1),
    phase=st.sampled_from((NodePhase.SUCCEEDED, NodePhase.SUCCEEDED, *NodePhase)),
    failure=st.sampled_from(("", "NotValid", "NotAcknowledged")),
)
REQUESTS = st.builds(
    RequestSummary,
    name=st.just("t"),
    gang=st.sampled_from(("x", "y")),
    batch=st.just(1),
    phase=st.sampled_from((RequestPhase.RESTORED, RequestPhase.RESTORED, *RequestPhase)),
    reason=st.sampled_from(("", "NotRestored")),
    late=st.sampled_from((False, False, True)),
)
RIVALS = st.builds(
    Rival,
    name=st.text("abc", min_size=1, max_size=3),
    made_at=st.sampled_from(("2026-11-21T09:00:00Z", "2026-11-21T09:00:01Z")),
    phase=st.sampled_from(P),
    approved=st.booleans(),
    state=st.sampled_from(DesiredState),
)


@st.composite
def plans(draw, phases=tuple(P)):
    return PlanView(
        name="up",
        phase=draw(st.sampled_from(phases)),
        state=draw(st.sampled_from((DesiredState.RUNNING, DesiredState.RUNNING, *DesiredState))),
        deleted=draw(st.sampled_from((False, False, True))),
        approved=draw(st.sampled_from((True, True, False))),
        target_revision="new",
        stack_present=draw(st.sampled_from((True, True, False))),
        stack_revision=draw(st.sampled_from(("new", "new", "old", "other"))),
        started_stack_revision=draw(REVISIONS),
        first=draw(st.sampled_from((None, None, "another"))),
        tolerated_failures=draw(COUNTS),
        max_interruptions=draw(COUNTS),
        interrupted=draw(COUNTS),
        batches=1,
        open_batch=draw(st.sampled_from((None, 1))),
        created=draw(st.booleans()),
        upgrades=tuple(draw(st.lists(UPGRADES, max_size=2))),
        requests=tuple(draw(st.lists(REQUESTS, max_size=2))),
        waiting=draw(COUNTS),
        installs=draw(COUNTS),
        next_batch=draw(st.none() | NEXT),
        now=START,
        reason=draw(st.sampled_from(("", plan_machine.CANARY_FAILED, plan_machine.ROLLED_BACK))),
        waiting_for_completion=draw(COUNTS),
        canaries=draw(CANARIES),
        losses=draw(LOSSES),
        deadline=draw(TIMES),
        on_failure=draw(st.sampled_from((OnFailure.PAUSE, OnFailure.PAUSE, OnFailure.ROLLBACK))),
        synced=draw(st.sampled_from((True, True, False))),
        revision_known=draw(st.booleans()),
    )


@given(plans())
def test_a_plan_goes_only_where_its_row_says(plan):
    decision = decide(plan)
    event(f"{plan.phase.value} to {decision.phase.value}")
    assert decision.phase is plan.phase or decision.phase in transition_of(plan.phase).to


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_a_batch_is_started_only_by_a_plan_that_may_and_inside_what_was_approved(plan):
    decision = decide(plan)
    if decision.start_batch:
        assert decision.phase is P.RUNNING
        assert (plan.open_batch, plan.first, plan.state, plan.deleted) == (None, None, DesiredState.RUNNING, False)
        assert plan.synced
        assert plan.interrupted + plan.next_batch.interruptions <= plan.max_interruptions
        assert plan.losses.approved is None or plan.losses.actual + plan.losses.expected <= plan.losses.approved
        assert len(decision.failures) <= plan.tolerated_failures
        assert not decision.undo


@given(plans(phases=(P.RUNNING, P.PAUSED, P.ABORTING)))
def test_a_batch_ends_only_when_nothing_of_it_is_under_way(plan):
    decision = decide(plan)
    if decision.end_batch:
        assert is_quiet(plan)
        assert plan.created or decision.phase is P.ABORTED


@given(plans(phases=(P.RUNNING, P.PAUSED, P.ABORTING)))
def test_a_plan_that_began_ends_only_with_its_batch(plan):
    decision = decide(plan)
    if is_final(decision.phase):
        assert plan.open_batch is None or decision.end_batch


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_complete_means_that_no_node_waits_and_nothing_failed(plan):
    decision = decide(plan)
    if decision.phase is P.COMPLETED:
        assert (plan.waiting, plan.installs, plan.waiting_for_completion) == (0, 0, 0)
        assert (plan.next_batch, decision.failures) == (None, ())


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_no_batch_starts_before_its_time_in_the_soak_or_after_the_deadline(plan):
    if decide(plan).start_batch:
        assert plan.next_batch.starts_at is None or plan.next_batch.starts_at <= plan.now
        assert plan.deadline is None or plan.now < plan.deadline
        soak = plan.canaries.soak_until if plan.canaries.enabled else None
        assert soak is None or soak <= plan.now


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_after_a_canary_that_failed_nothing_starts_whatever_is_tolerated(plan):
    assume(plan.canaries.enabled)
    plan = msgspec.structs.replace(plan, tolerated_failures=100)
    decision = decide(plan)
    failed = any(
        one.phase is NodePhase.FAILED and one.failure == "NotValid" and one.batch in plan.canaries.batches
        for one in plan.upgrades
    )
    if failed:
        assert not decision.start_batch
        assert decision.phase is not P.COMPLETED
        assert decision.soak_until is None


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_a_soak_begins_with_the_end_of_each_batch_of_canaries_and_with_nothing_else(plan):
    decision = decide(plan)
    if decision.soak_until is not None:
        assert decision.end_batch
        assert plan.open_batch in plan.canaries.batches
        assert decision.soak_until == plan.now + timedelta(seconds=plan.canaries.soak_seconds)


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_what_is_under_way_is_broken_off_only_for_an_abort(plan):
    aborting = plan.deleted or plan.state in {DesiredState.ABORTED, DesiredState.ROLLED_BACK} or not plan.stack_present
    if plan.open_batch is not None and not aborting:
        assert not decide(plan).undo


@given(plans(phases=(P.RUNNING, P.PAUSED, P.ABORTING)))
def test_going_back_by_itself_needs_a_plan_that_says_so(plan):
    if plan.phase is not P.ABORTING and decide(plan).reason == plan_machine.ROLLED_BACK:
        assert plan.on_failure is OnFailure.ROLLBACK
        assert decide(plan).failures


@given(plans(phases=(P.RUNNING, P.PAUSED)))
def test_a_plan_that_is_to_end_takes_back_what_it_started(plan):
    assume(plan.deleted or plan.state in {DesiredState.ABORTED, DesiredState.ROLLED_BACK} or not plan.stack_present)
    decision = decide(plan)
    assert (decision.phase, decision.undo) == (P.ABORTING, True)


@given(st.lists(RIVALS, min_size=2, max_size=5, unique_by=lambda one: one.name))
def test_of_all_plans_of_a_stack_at_most_one_may_start_something(found):
    able = [
        one
        for one in found
        if one.phase in UNDER_WAY or (one.phase is P.PROPOSED and one.approved and one.state is DesiredState.RUNNING)
    ]
    free = [one for one in able if goes_first(one, [other for other in found if other is not one]) is None]
    assert len(free) == bool(able)


@given(st.lists(RIVALS, min_size=2, max_size=5, unique_by=lambda one: one.name), st.data())
def test_who_has_a_batch_keeps_it_alone(found, data):
    running = [one for one in found if one.phase in UNDER_WAY]
    assume(running)
    busy = data.draw(st.sampled_from(running)).name
    seen = [Rival(**{**{k: getattr(one, k) for k in one.__struct_fields__}, "busy": one.name == busy}) for one in found]
    for one in seen:
        others = [other for other in seen if other is not one]
        if one.name != busy and one.phase in UNDER_WAY:
            assert goes_first(one, others) is not None
