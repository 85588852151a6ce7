"""The laws of the checkpoint request of a gang, on every view that can be thought of: each test is one sentence.

As in test_laws.py, whose beginning says why the views are mostly impossible.
"""

from datetime import timedelta
from functools import cache

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.acknowledgements import Ack, AckVerdict
from upgrader.core.checkpoint_request.request_machine import judge_gang
from upgrader.core.checkpoint_request.request_state import GangAct, GroupOfGang, OwnerFacts, RequestView
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final, transition_of
from upgrader_dev.simulated.cluster.ports import START

NOW = START
TIMES = st.sampled_from([None, *(START + timedelta(seconds=s) for s in (-3600, -5, -1, 0, 1, 30, 90, 3600))])
PAST = st.sampled_from([START - timedelta(seconds=s) for s in (0, 1, 3600)])
MANY = examples(400)
OPEN = tuple(phase for phase in RequestPhase if not is_final(phase))

UIDS = ("m1", "m2", "m3")
GANG = "default/Job/train"


@cache
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


@cache
def answers(uid):
    return st.builds(
        Ack,
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
    return chosen.flatmap(lambda uids: _each(of, uids))


@cache
def _each(of, uids):
    return st.tuples(*(of(uid) for uid in uids))


@cache
def gangs(phases=tuple(RequestPhase), deadlines=TIMES):
    return st.builds(
        RequestView,
        name=st.just("r1"),
        gang=st.just(GANG),
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
        method=st.sampled_from(("file", "file", "none")),
        leader=st.sampled_from(("", "", "m1", "m2")),
        max_loss_seconds=st.sampled_from((0, 0, 99, 100, 3600)),
        timeout_seconds=st.sampled_from((99, 100, 1800)),
        on_deadline=st.sampled_from(("wait", "skip-node", "terminate")),
        admitted_at=st.sampled_from((None, None, START - timedelta(seconds=50))),
        progress=st.lists(st.sampled_from((None, 100, 101)), max_size=2).map(tuple),
    )


AROUND = st.builds(
    GroupOfGang,
    nodes=st.lists(st.sampled_from(NodePhase) | st.just(NodePhase.DRAINING), max_size=2).map(tuple),
    siblings=st.lists(st.sampled_from(RequestPhase), max_size=1).map(tuple),
    undo=st.booleans(),
    ask_until=TIMES,
    forbidden=st.sampled_from(("", "", "", "another gang is not ready")),
    pods_left=st.sampled_from(("", "", "", "waiting for pod default/web to end first")),
    expendable=st.sampled_from((frozenset(), frozenset(), frozenset({"default/Job/other"}), frozenset({GANG}))),
    turns=st.sampled_from((None, None, frozenset(), frozenset({"r1"}))),
)


def may_be_stopped(view, around):
    """Law 1, and its one exception: every member that counts has acknowledged, or the approval names the gang."""
    if judge_gang(view, NOW).verdict is AckVerdict.VALID:
        return True
    return view.gang in around.expendable and view.acknowledged_step is None


def counted(view):
    """What the members said whose answer counts, by uid; None where one said nothing."""
    said = {one.pod_uid: one for one in view.answers}
    alive = [one.uid for one in view.present if one.phase != "Succeeded"]
    return {uid: said.get(uid) for uid in ([view.leader] if view.leader and alive else alive)}


@given(gangs(), AROUND)
def test_a_request_goes_only_where_its_row_says(view, around):
    decision = request_machine.decide(view, around, NOW)
    event(f"{view.phase.value} to {decision.phase.value}")
    assert decision.phase is view.phase or decision.phase in transition_of(view.phase).to


@MANY
@given(gangs(phases=(RequestPhase.STOPPING, RequestPhase.STOPPING, *RequestPhase)), AROUND)
def test_no_gang_is_stopped_without_a_valid_acknowledgement_unless_the_approval_names_it(view, around):
    decision = request_machine.decide(view, around, NOW)
    if GangAct.STOP in decision.acts:
        event("expendable" if judge_gang(view, NOW).verdict is not AckVerdict.VALID else "acknowledged")
        assert may_be_stopped(view, around)
        assert not around.undo
        assert not view.owner.suspended
        assert view.phase is RequestPhase.STOPPING
        first = view.owner.stopped_by != view.name
        assert not (first and (around.pods_left or around.forbidden)), "it would be the gang's only stop, and in vain"
        assert {one.uid for one in view.present if one.phase != "Succeeded"} <= set(view.members)


@MANY
@given(gangs(phases=(RequestPhase.PARKED, RequestPhase.PARKED, *RequestPhase)), AROUND)
def test_the_intent_to_stop_needs_a_valid_acknowledgement_and_every_node_closed(view, around):
    decision = request_machine.decide(view, around, NOW)
    if decision.phase is RequestPhase.STOPPING and view.phase is not RequestPhase.STOPPING:
        assert may_be_stopped(view, around)
        assert set(around.nodes) <= {NodePhase.DRAINING}


@MANY
@given(gangs())
def test_what_is_valid_is_safe_whoever_speaks_and_whatever_may_be_lost(view):
    """Said without the judge's own words: equal steps, this request, a lasting place, parked or fresh enough."""
    if judge_gang(view, NOW).verdict is not AckVerdict.VALID:
        return
    said = counted(view)
    assert None not in said.values()
    assert len({one.step for one in said.values()}) <= 1
    age = (NOW - view.asked_since).total_seconds()
    for one in said.values():
        assert one.request_id == view.request_id
        assert not one.refused
        assert one.uri in {"/data/c", "s3://bucket/c"}
        assert one.parked or 0 < age <= view.max_loss_seconds
    assert {one.uid for one in view.present} >= set(view.members)


@MANY
@given(gangs(phases=(RequestPhase.REQUESTED,)), AROUND)
def test_nobody_is_asked_before_its_turn_in_its_lane_is_written_down(view, around):
    decision = request_machine.decide(view, around, NOW)
    if around.turns is not None and view.admitted_at is None:
        assert GangAct.REQUEST not in decision.acts
        assert not decision.admitted or view.name in around.turns


@given(gangs(), AROUND)
def test_only_what_we_stopped_is_restarted_by_us(view, around):
    decision = request_machine.decide(view, around, NOW)
    if GangAct.RESUME in decision.acts:
        assert view.owner.stopped_by == view.name


@given(gangs(phases=OPEN), AROUND)
def test_a_job_that_somebody_else_suspended_is_neither_stopped_nor_restarted(view, around):
    owner = msgspec.structs.replace(view.owner, suspended=True, stopped_by="")
    decision = request_machine.decide(msgspec.structs.replace(view, owner=owner), around, NOW)
    assert not {GangAct.STOP, GangAct.RESUME} & set(decision.acts)


# Before the stop is intended there is no record of a request: STOPPING alone writes it.
@MANY
@given(gangs(phases=(RequestPhase.STOPPING, RequestPhase.STOPPED, RequestPhase.RESTARTING)), AROUND)
def test_a_request_ends_without_our_record_on_the_job(view, around):
    decision = request_machine.decide(view, around, NOW)
    if is_final(decision.phase) and view.owner.present:
        assert view.owner.stopped_by != view.name or GangAct.RESUME in decision.acts


@given(gangs(phases=(RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.EXPIRED)), AROUND)
def test_members_that_were_asked_and_not_stopped_are_released(view, around):
    decision = request_machine.decide(view, around, NOW)
    if is_final(decision.phase):
        gone = not view.owner.present or view.owner.finished
        assert gone or GangAct.WITHDRAW in decision.acts


@MANY
@given(gangs(phases=OPEN, deadlines=PAST), AROUND)
def test_a_request_whose_deadline_has_passed_is_led_out(view, around):
    decision = request_machine.decide(view, around, NOW)
    restarts = decision.acts == (GangAct.RESUME,)
    assert decision.phase is not view.phase or restarts


@MANY
@given(gangs(phases=(RequestPhase.RESTARTING,)), AROUND)
def test_a_gang_is_restored_only_past_its_acknowledged_step(view, around):
    decision = request_machine.decide(view, around, NOW)
    if decision.phase is RequestPhase.RESTORED:
        step = -1 if view.acknowledged_step is None else view.acknowledged_step
        assert len(view.progress) >= view.owner.wanted
        assert view.method == "none" or all(one is not None and one > step for one in view.progress)
