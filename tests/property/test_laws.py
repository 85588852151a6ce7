"""The laws of both state machines, on every view that can be thought of: each test is one sentence.

Views are random and mostly impossible; the rules must be right on them all the same, since a restart, a conflict or a
person can put almost any two facts beside each other. tests/property/test_walks.py follows whole walks.
"""

from datetime import timedelta

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import node as node_facts
from tests.support.world import START
from upgrader.core import conversation, visit
from upgrader.core.acknowledgement import Answer, Verdict
from upgrader.core.conversation import GangAct, GangClosure, OwnerFacts, RequestView, judgement
from upgrader.core.fleet import MemberFacts
from upgrader.core.orders import OrderResult, Reason
from upgrader.core.phases import NodePhase, RequestPhase, VisitReason, ends, row
from upgrader.core.visit_facts import (
    Act,
    ClosureView,
    Errand,
    NodeView,
    OperandFacts,
    OtherPod,
    Outcome,
    RequestFacts,
)

NOW = START
TIMES = st.sampled_from([None, *(START + timedelta(seconds=s) for s in (-3600, -5, -1, 0, 1, 30, 90, 3600))])
SINCE = st.sampled_from([START - timedelta(seconds=s) for s in (0, 4, 5, 60, 3600)])
RESULTS = st.sampled_from([None, OrderResult(reason=Reason.DONE, message="done")])

# ------------------------------------------------------------------------------------------------------- nodes

NODES = st.builds(
    lambda **facts: node_facts("node-1", **facts),
    driver_key=st.sampled_from(("", "none", "k-old", "k-new")),
    plugin_key=st.sampled_from(("", "k-new")),
    operands=st.sampled_from(("", "on", "off")),
    revision=st.sampled_from(("", "old")),
    visit=st.sampled_from(("", "uid-1", "uid-other")),
    gpus_allocatable=st.sampled_from((0, 8)),
    ready=st.booleans(),
)
ERRANDS = st.builds(Errand, outcome=st.sampled_from(Outcome), result=RESULTS, trouble=st.sampled_from(("", "why")))
OPERANDS = st.builds(OperandFacts, pods=st.integers(0, 1), ready=st.integers(0, 1))
PODS = st.builds(
    OtherPod,
    name=st.just("pod"),
    namespace=st.just("default"),
    uid=st.sampled_from(("p1", "p2")),
    member=st.booleans(),
    evictable=st.booleans(),
    before_boot=st.booleans(),
)


def views(name="node-1", phases=tuple(NodePhase), deadlines=TIMES):
    return st.builds(
        NodeView,
        name=st.just(name),
        uid=st.just("uid-1"),
        reason=st.sampled_from(VisitReason),
        phase=st.sampled_from(phases),
        phase_since=SINCE,
        deadline=deadlines,
        reverting=st.booleans(),
        failure=st.sampled_from(("", "VisitFailed")),
        node=st.none() | NODES,
        driver_key=st.sampled_from(("", "k-new")),
        plugin_key=st.sampled_from(("", "k-new")),
        expected_gpus=st.sampled_from((0, 8)),
        prepare=ERRANDS,
        visit=ERRANDS,
        validate=ERRANDS,
        driver=OPERANDS,
        plugin=OPERANDS,
        others=st.lists(PODS, max_size=2).map(tuple),
    )


def requests(phases):
    return st.lists(
        st.builds(
            RequestFacts,
            name=st.just("r"),
            gang=st.sampled_from(("g1", "g2")),
            phase=st.sampled_from(phases),
            bound=st.booleans(),
        ),
        max_size=2,
    ).map(tuple)


LIKELY = {
    NodePhase.PREPARED: (RequestPhase.PARKED, RequestPhase.PARKED, RequestPhase.ENDED),
    NodePhase.CLOSING: (RequestPhase.PARKED, RequestPhase.ENDED),
    NodePhase.DRAINING: (RequestPhase.STOPPED, RequestPhase.STOPPED, RequestPhase.ENDED, RequestPhase.STOPPING),
}
"""Conversations beside which a node in this phase gets on: else hardly any would."""


@st.composite
def walks(draw, phases=tuple(NodePhase), deadlines=TIMES):
    """A node and its closure: siblings are often where it is, conversations where it needs them, or anywhere."""
    view = draw(views(phases=phases, deadlines=deadlines))
    like_it = (view.phase, view.phase, view.phase, *NodePhase)
    siblings = draw(st.lists(views("node-2", phases=like_it), max_size=2))
    likely = draw(st.sampled_from((LIKELY.get(view.phase, tuple(RequestPhase)), tuple(RequestPhase))))
    closure = ClosureView(
        nodes=(view, *siblings),
        requests=draw(requests(likely)),
        gangs=draw(st.integers(0, 2)),
        undo=draw(st.sampled_from((False, False, True))),
    )
    # Only a bring-back is tainted before it is prepared, and nothing is before it begins.
    assume(view.phase is not NodePhase.PENDING or view.node is None or view.node.visit != view.uid)
    return view, closure


ACTIVE = tuple(phase for phase in NodePhase if not ends(phase))
TALKING = tuple(phase for phase in RequestPhase if not ends(phase))
PAST = st.sampled_from([START - timedelta(seconds=s) for s in (0, 1, 3600)])
MANY = examples(400)


@given(walks())
def test_a_node_goes_only_where_its_row_says(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    event(f"{view.phase.value} to {decision.phase.value}")
    assert decision.phase is view.phase or decision.phase in row(view.phase).to


@given(walks(phases=tuple(phase for phase in NodePhase if ends(phase))))
def test_a_node_that_has_ended_is_left_alone(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    assert (decision.phase, decision.acts) == (view.phase, ())


@given(walks(phases=tuple(phase for phase in ACTIVE if phase is not NodePhase.PENDING), deadlines=PAST))
def test_a_node_whose_deadline_has_passed_is_led_out(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    leaves = decision.phase is not view.phase
    turns = decision.reverting and not view.reverting
    gives_back = decision.acts == (Act.GIVE_BACK,)
    last_act = view.reverting and decision.acts == (Act.OPERANDS_OFF,) and view.deadline + visit.LAST_ACT > NOW
    held = decision.held == visit.UNSUPPORTED  # until the work that runs there has ended
    assert leaves or turns or gives_back or decision.on_siblings or last_act or held


@MANY
@given(walks(phases=(NodePhase.VALIDATING,)))
def test_who_waits_for_siblings_waits_for_one_that_has_a_way_out_of_its_own(walk):
    view, closure = walk
    if visit.decide(view, closure, NOW).on_siblings:
        behind = [one for one in closure.nodes if not ends(one.phase) and one.phase is not NodePhase.RELEASING]
        assert [one for one in behind if not (one.phase is view.phase and one.validate.outcome is Outcome.SUCCEEDED)]


@given(walks())
def test_a_node_turns_round_at_most_once_and_only_after_it_was_touched(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    if decision.reverting and not view.reverting:
        assert decision.phase is NodePhase.OFF
        assert view.phase in {NodePhase.OFF, NodePhase.VISITING, NodePhase.TURNING_ON, NodePhase.VALIDATING}
        assert decision.failure
    if view.reverting:
        assert decision.reverting


@given(walks())
def test_what_is_done_to_the_world_belongs_to_the_phase(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    bring_back = view.phase is NodePhase.PREPARING and view.reason is VisitReason.BRING_BACK
    more = {
        Act.CLOSE: bring_back,
        Act.DRIVER_ON: view.phase is NodePhase.TURNING_ON,
        Act.OPERANDS_OFF: view.reverting,  # before it is given up
    }
    allowed = {row(view.phase).act, *(act.value for act, may in more.items() if may)}
    assert {act.value for act in decision.acts} <= (allowed if view.node is not None else {Act.CANCEL.value})
    assert not decision.acts or decision.phase is view.phase, "acts come before the record of what they proved"


@given(walks(phases=(NodePhase.CLOSING, NodePhase.DRAINING)))
def test_nothing_of_a_gang_is_evicted(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    assert not [pod for pod in decision.evict if pod.member]


@MANY
@given(walks(phases=(NodePhase.DRAINING,)))
def test_a_node_is_switched_off_only_when_every_gang_has_stopped_or_ended_and_no_pod_is_left(walk):
    view, closure = walk
    if visit.decide(view, closure, NOW).phase is NodePhase.OFF:
        assert {one.phase for one in closure.requests} <= {RequestPhase.STOPPED, RequestPhase.ENDED}
        assert view.others == ()
        assert not any(one.phase in {NodePhase.PREPARED, NodePhase.CLOSING} for one in closure.nodes)


@MANY
@given(walks(phases=(NodePhase.PREPARED,)))
def test_a_node_is_closed_only_when_every_gang_has_acknowledged_or_ended(walk):
    view, closure = walk
    if visit.decide(view, closure, NOW).phase is NodePhase.CLOSING:
        assert {one.phase for one in closure.requests} <= {RequestPhase.PARKED, RequestPhase.ENDED}
        assert len(closure.requests) >= closure.gangs


@MANY
@given(walks(phases=ACTIVE))
def test_a_visit_ends_without_its_mark_on_the_node_unless_a_person_must_look(walk):
    view, closure = walk
    decision = visit.decide(view, closure, NOW)
    if ends(decision.phase) and decision.phase is not NodePhase.GONE:
        marked = view.node is not None and view.node.visit == view.uid
        assert not marked or decision.failure == "RevertFailed"


@MANY
@given(walks(phases=(NodePhase.VALIDATING,)))
def test_a_node_is_given_back_only_valid_and_with_all_its_siblings(walk):
    view, closure = walk
    ahead = [one for one in closure.nodes if one.phase is NodePhase.RELEASING and not one.failure and not one.reverting]
    if visit.decide(view, closure, NOW).phase is NodePhase.RELEASING and not ahead:
        assert view.validate.outcome is Outcome.SUCCEEDED
        assert view.reverting or not any(one.reverting for one in closure.nodes)


@given(walks(phases=tuple(visit.BEFORE_OFF)))
def test_an_undone_closure_touches_nothing_more(walk):
    view, closure = walk
    nodes = tuple(one for one in closure.nodes if one.phase in visit.BEFORE_OFF or ends(one.phase))
    decision = visit.decide(view, msgspec.structs.replace(closure, nodes=nodes, undo=True), NOW)
    assert decision.acts == ()
    assert decision.phase in {view.phase, NodePhase.FAILED, NodePhase.RELEASING, NodePhase.GONE}
    assert decision.phase is not view.phase


# ------------------------------------------------------------------------------------------------------- gangs

UIDS = ("m1", "m2", "m3")


def members(uid):
    return st.builds(
        MemberFacts,
        pod=st.just(f"pod-{uid}"),
        uid=st.just(uid),
        namespace=st.just("default"),
        node=st.just("node-1"),
        container=st.just("trainer"),
        phase=st.sampled_from(("Running", "Running", "Running", "Pending", "Succeeded", "Failed")),
        terminating=st.booleans(),
        request=st.sampled_from(("", "7", "6")),
        ephemeral_paths=st.just(("/run/checkpoint",)),
        volume_paths=st.just(("/data",)),
    )


def answers(uid):
    return st.builds(
        Answer,
        pod_uid=st.just(uid),
        request_id=st.sampled_from((7, 7, 7, 6)),
        step=st.sampled_from((100, 100, 101)),
        uri=st.sampled_from(("/data/c", "/data/c", "/run/checkpoint/c", "s3://bucket/c", "")),
        parked=st.sampled_from((True, True, False)),
        refused=st.sampled_from(("", "", "no")),
    )


def some(of):
    """Any subset of UIDS, most often the first two."""
    chosen = st.sampled_from((("m1", "m2"), ("m1", "m2"), ("m1",), UIDS, ()))
    return chosen.flatmap(lambda uids: st.tuples(*(of(uid) for uid in uids)))


def gangs(phases=tuple(RequestPhase), deadlines=TIMES):
    return st.builds(
        RequestView,
        name=st.just("r1"),
        gang=st.just("default/Job/train"),
        phase=st.sampled_from(phases),
        deadline=deadlines,
        request_id=st.just(7),
        asked_at=st.just(START - timedelta(seconds=100)),
        stop_before=st.sampled_from([START + timedelta(seconds=s) for s in (-1, 30, 60, 61, 600)]),
        restart_by=deadlines,
        members=st.sampled_from((("m1", "m2"), ("m1", "m2"), ("m1",), ())),
        present=some(members),
        answers=some(answers),
        owner=st.builds(
            OwnerFacts,
            present=st.sampled_from((True, True, True, False)),
            suspended=st.booleans(),
            stopped_by=st.sampled_from(("", "r1", "r-other")),
            ordered=st.booleans(),
            unconfirmed=st.booleans(),
            active=st.integers(0, 1),
            finished=st.sampled_from((False, False, False, True)),
            wanted=st.integers(0, 2),
            queued=st.sampled_from(("", "", "its queue has not admitted it")),
        ),
        forbidden=st.sampled_from(("", "", "PodDisruptionBudget web allows it not")),
        acknowledged_step=st.sampled_from((None, 100)),
        progress=st.lists(st.sampled_from((None, 100, 101)), max_size=2).map(tuple),
    )


AROUND = st.builds(
    GangClosure,
    nodes=st.lists(st.sampled_from(NodePhase) | st.just(NodePhase.DRAINING), max_size=2).map(tuple),
    siblings=st.lists(st.sampled_from(RequestPhase), max_size=1).map(tuple),
    undo=st.booleans(),
    ask_until=TIMES,
)


@given(gangs(), AROUND)
def test_a_conversation_goes_only_where_its_row_says(view, around):
    decision = conversation.decide(view, around, NOW)
    event(f"{view.phase.value} to {decision.phase.value}")
    assert decision.phase is view.phase or decision.phase in row(view.phase).to


@MANY
@given(gangs(phases=(RequestPhase.STOPPING, RequestPhase.STOPPING, *RequestPhase)), AROUND)
def test_no_gang_is_stopped_without_a_valid_acknowledgement_of_all_its_members(view, around):
    decision = conversation.decide(view, around, NOW)
    if GangAct.STOP in decision.acts:
        assert judgement(view, NOW).verdict is Verdict.VALID
        assert not around.undo
        assert not view.owner.suspended
        assert view.phase is RequestPhase.STOPPING


@MANY
@given(gangs(phases=(RequestPhase.PARKED, RequestPhase.PARKED, *RequestPhase)), AROUND)
def test_the_intent_to_stop_needs_a_valid_acknowledgement_and_every_node_closed(view, around):
    decision = conversation.decide(view, around, NOW)
    if decision.phase is RequestPhase.STOPPING and view.phase is not RequestPhase.STOPPING:
        assert judgement(view, NOW).verdict is Verdict.VALID
        assert set(around.nodes) <= {NodePhase.DRAINING}


@given(gangs(), AROUND)
def test_only_what_we_stopped_is_restarted_by_us(view, around):
    decision = conversation.decide(view, around, NOW)
    if GangAct.RESUME in decision.acts:
        assert view.owner.stopped_by == view.name


@given(gangs(phases=TALKING), AROUND)
def test_a_job_that_somebody_else_suspended_is_neither_stopped_nor_restarted(view, around):
    owner = msgspec.structs.replace(view.owner, suspended=True, stopped_by="")
    decision = conversation.decide(msgspec.structs.replace(view, owner=owner), around, NOW)
    assert not {GangAct.STOP, GangAct.RESUME} & set(decision.acts)


# Before the stop is intended there is no record of a conversation: STOPPING alone writes it.
@MANY
@given(gangs(phases=(RequestPhase.STOPPING, RequestPhase.STOPPED, RequestPhase.RESTARTING)), AROUND)
def test_a_conversation_ends_without_our_record_on_the_job(view, around):
    decision = conversation.decide(view, around, NOW)
    if ends(decision.phase) and view.owner.present:
        assert view.owner.stopped_by != view.name or GangAct.RESUME in decision.acts


@given(gangs(phases=(RequestPhase.ASKING, RequestPhase.PARKED, RequestPhase.EXPIRED)), AROUND)
def test_members_that_were_asked_and_not_stopped_are_let_go(view, around):
    decision = conversation.decide(view, around, NOW)
    if ends(decision.phase):
        gone = not view.owner.present or view.owner.finished
        assert gone or GangAct.WITHDRAW in decision.acts


@MANY
@given(gangs(phases=TALKING, deadlines=PAST), AROUND)
def test_a_conversation_whose_deadline_has_passed_is_led_out(view, around):
    decision = conversation.decide(view, around, NOW)
    restarts = decision.acts == (GangAct.RESUME,)
    assert decision.phase is not view.phase or restarts


@MANY
@given(gangs(phases=(RequestPhase.RESTARTING,)), AROUND)
def test_a_gang_is_restored_only_past_its_acknowledged_step(view, around):
    decision = conversation.decide(view, around, NOW)
    if decision.phase is RequestPhase.RESTORED:
        step = -1 if view.acknowledged_step is None else view.acknowledged_step
        assert len(view.progress) >= view.owner.wanted
        assert all(one is not None and one > step for one in view.progress)
