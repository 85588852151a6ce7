"""The laws of upgrades, on every view that can be thought of: each test is one sentence (gangs: test_laws_of_gangs.py).

Views are random and mostly impossible; the rules must be right on them all the same, since a restart, a conflict or a
person can put almost any two facts beside each other. tests/property/test_walks.py follows whole walks.
"""

from datetime import timedelta
from functools import cache

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import node as node_facts
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason, is_final, transition_of
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade import clearing, upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import (
    Act,
    GroupView,
    NodeView,
    OperandFacts,
    OtherPod,
    PodOutcome,
    PodResult,
    RequestFacts,
    missing_gpus,
)
from upgrader_dev.simulated.cluster.ports import START

NOW = START
TIMES = st.sampled_from([None, *(START + timedelta(seconds=s) for s in (-3600, -5, -1, 0, 1, 30, 90, 3600))])
SINCE = st.sampled_from([START - timedelta(seconds=s) for s in (0, 4, 5, 60, 3600)])
RESULTS = st.sampled_from([None, OrderResult(reason=Reason.DONE, message="done")])

# What makes a strategy is cached, here and in the other laws: to make one costs more than to draw from it.

# ------------------------------------------------------------------------------------------------------- nodes

NODES = st.builds(
    lambda **facts: node_facts("node-1", **facts),
    driver_key=st.sampled_from(("", "none", "k-old", "k-new")),
    plugin_key=st.sampled_from(("", "k-new")),
    operands=st.sampled_from(("", "on", "off")),
    revision=st.sampled_from(("", "old")),
    claimed_by=st.sampled_from(("", "uid-1", "uid-other")),
    released_by=st.sampled_from(("uid-1", "uid-1", "", "uid-other")),
    gpus_allocatable=st.sampled_from((0, 7, 8)),
    ready=st.booleans(),
)
POD_RESULTS = st.builds(
    PodResult,
    outcome=st.sampled_from(PodOutcome),
    result=RESULTS,
    trouble=st.sampled_from(("", "why")),
    suspended=st.booleans(),
)
OPERANDS = st.builds(OperandFacts, pods=st.integers(0, 1), ready=st.integers(0, 1))
PODS = st.builds(
    OtherPod,
    name=st.just("pod"),
    namespace=st.just("default"),
    uid=st.sampled_from(("p1", "p2")),
    member=st.booleans(),
    evictable=st.booleans(),
    expendable=st.booleans(),
    before_boot=st.booleans(),
)


@cache
def views(name="node-1", phases=tuple(NodePhase), deadlines=TIMES):
    return st.builds(
        NodeView,
        name=st.just(name),
        uid=st.just("uid-1"),
        reason=st.sampled_from(UpgradeReason),
        phase=st.sampled_from(phases),
        phase_since=SINCE,
        deadline=deadlines,
        reverting=st.booleans(),
        failure=st.sampled_from(("", "UpgradeFailed", clearing.ARRIVED)),
        node=st.none() | NODES,
        driver_key=st.sampled_from(("", "k-new")),
        plugin_key=st.sampled_from(("", "k-new")),
        expected_gpus=st.sampled_from((0, 8)),
        prepare=POD_RESULTS,
        upgrade=POD_RESULTS,
        validate=POD_RESULTS,
        driver=OPERANDS,
        plugin=OPERANDS,
        others=st.lists(PODS, max_size=2).map(tuple),
    )


@cache
def requests(phases):
    return st.lists(
        st.builds(
            RequestFacts,
            name=st.just("r"),
            gang=st.sampled_from(("g1", "g2")),
            phase=st.sampled_from(phases),
            bound=st.booleans(),
            deadline=TIMES,
        ),
        max_size=2,
    ).map(tuple)


LIKELY = {
    NodePhase.PREPARED: (RequestPhase.PARKED, RequestPhase.PARKED, RequestPhase.ENDED, RequestPhase.STOPPING),
    NodePhase.TAINTING: (RequestPhase.PARKED, RequestPhase.ENDED),
    NodePhase.DRAINING: (RequestPhase.STOPPED, RequestPhase.STOPPED, RequestPhase.ENDED, RequestPhase.STOPPING),
}
"""Requests beside which a node in this phase gets on: else hardly any would."""


@st.composite
def walks(draw, phases=tuple(NodePhase), deadlines=TIMES):
    """A node and its group: siblings are often where it is, requests where it needs them, or anywhere."""
    view = draw(views(phases=phases, deadlines=deadlines))
    like_it = (view.phase, view.phase, view.phase, *NodePhase)
    siblings = draw(st.lists(views("node-2", phases=like_it), max_size=2))
    likely = draw(st.sampled_from((LIKELY.get(view.phase, tuple(RequestPhase)), tuple(RequestPhase))))
    group = GroupView(
        nodes=(view, *siblings),
        requests=draw(requests(likely)),
        gangs=draw(st.integers(0, 2)),
        undo=draw(st.sampled_from((False, False, True))),
    )
    # Only a repair is tainted before it is prepared, and nothing is before it begins.
    assume(view.phase is not NodePhase.PENDING or view.node is None or view.node.claimed_by != view.uid)
    return view, group


ACTIVE = tuple(phase for phase in NodePhase if not is_final(phase))
PAST = st.sampled_from([START - timedelta(seconds=s) for s in (0, 1, 3600)])
MANY = examples(400)
ACKNOWLEDGED = {RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED, RequestPhase.ENDED}
"""Stopping, stopped: where a node upgrade is made anew since somebody deleted it after the gang had acknowledged."""


@given(walks())
def test_a_node_goes_only_where_its_row_says(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    event(f"{view.phase.value} to {decision.phase.value}")
    assert decision.phase is view.phase or decision.phase in transition_of(view.phase).to


@st.composite
def short_of_gpus(draw):
    """A node that is validated with fewer GPUs than it had, whatever has become of the others of its group."""
    view, group = draw(walks(phases=(NodePhase.VALIDATING,)))
    found = msgspec.structs.replace(view.node or node_facts("node-1"), gpus_allocatable=draw(st.integers(0, 7)))
    view = msgspec.structs.replace(view, node=found)
    return view, msgspec.structs.replace(group, nodes=(view, *group.nodes[1:]), undo=False)


@given(short_of_gpus())
def test_no_node_is_released_without_a_gpu_that_it_had(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    event(f"{view.validate.outcome.value}: {decision.phase.value}")
    assert decision.phase is not NodePhase.RELEASING


@given(walks(phases=tuple(phase for phase in NodePhase if is_final(phase))))
def test_a_node_that_has_ended_is_left_alone(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    assert (decision.phase, decision.acts) == (view.phase, ())


@given(walks(phases=tuple(phase for phase in ACTIVE if phase is not NodePhase.PENDING), deadlines=PAST))
def test_a_node_whose_deadline_has_passed_is_led_out(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    leaves = decision.phase is not view.phase
    turns = decision.reverting and not view.reverting
    releases = decision.acts == (Act.RELEASE,)
    last_acts = {(Act.OPERANDS_OFF,), (Act.CANCEL,)}
    last_act = decision.acts in last_acts and view.deadline + upgrade_machine.LAST_ACT > NOW
    blocked = decision.blocked == clearing.UNSUPPORTED  # until the work that runs there has ended
    assert leaves or turns or releases or decision.on_siblings or last_act or blocked


@MANY
@given(walks(phases=(NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING)))
def test_no_upgrade_job_is_made_and_no_device_offered_while_a_pod_is_there_that_was_not_stopped(walk):
    view, group = walk
    acts = upgrade_machine.decide(view, group, NOW).acts
    strangers = [pod for pod in view.others if not pod.member]
    event(f"{view.phase.value}: {len(strangers)} strangers, {', '.join(acts)}")
    assert not (strangers and Act.UPGRADE in acts)
    assert not (any(pod.gpus for pod in strangers) and Act.OPERANDS_ON in acts and not clearing.is_untouched(view))


@MANY
@given(walks(phases=(NodePhase.VALIDATING,)))
def test_who_waits_for_siblings_waits_for_one_that_has_a_way_out_of_its_own(walk):
    view, group = walk
    if upgrade_machine.decide(view, group, NOW).on_siblings:
        behind = [one for one in group.nodes if not is_final(one.phase) and one.phase is not NodePhase.RELEASING]
        assert [one.name for one in behind if not upgrade_machine.decide(one, group, NOW).on_siblings]


@given(walks(phases=(NodePhase.DRAINING, NodePhase.VALIDATING), deadlines=PAST))
def test_who_waits_past_its_deadline_has_a_new_one_that_is_of_what_it_waits_for(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    gangs = [gang.deadline for gang in group.requests if gang.phase is RequestPhase.STOPPING]
    nodes = [node.deadline for node in group.nodes if not is_final(node.phase)]
    event(f"waits: {decision.on_siblings}, for gangs: {bool(gangs)}")
    if decision.on_siblings:
        assert decision.deadline == max(filter(None, gangs or nodes), default=None)
    else:
        assert decision.deadline is None


@given(walks())
def test_a_node_turns_round_at_most_once_and_only_after_it_was_touched(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    if decision.reverting and not view.reverting:
        assert decision.phase is NodePhase.UNLOADING
        assert view.phase in {NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING, NodePhase.VALIDATING}
        assert decision.failure
    if view.reverting:
        assert decision.reverting


@given(walks())
def test_what_is_done_to_the_world_belongs_to_the_phase(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    repair = view.phase is NodePhase.PREPARING and view.reason is UpgradeReason.REPAIR
    more = {
        Act.CLOSE: repair,
        Act.DRIVER_ON: view.phase is NodePhase.LOADING,
        Act.OPERANDS_OFF: view.reverting,  # before it is given up
        Act.EVICT: bool(clearing.find_arrivals(view)),  # in place of an act that would end them
        Act.CANCEL: view.phase is NodePhase.UPGRADING and view.upgrade.suspended,
    }
    allowed = {transition_of(view.phase).act, *(act.value for act, may in more.items() if may)}
    assert {act.value for act in decision.acts} <= (
        allowed if view.node is not None else {Act.CANCEL.value, Act.CANCEL_FIRST.value}
    )
    assert not decision.acts or decision.phase is view.phase, "acts come before the record of what they proved"


@given(walks(phases=(NodePhase.TAINTING, NodePhase.DRAINING)))
def test_nothing_of_a_gang_is_evicted(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    assert not [pod for pod in decision.evict if pod.member]


LAST = OtherPod(name="solo", namespace="default", uid="solo", evictable=True, expendable=True)


@MANY
@given(walks(phases=(NodePhase.DRAINING,)), requests(LIKELY[NodePhase.DRAINING]))
def test_what_nobody_makes_again_goes_only_when_every_gang_has_stopped_or_ended(walk, asked):
    view, group = walk
    view = msgspec.structs.replace(view, others=(*view.others, LAST))
    # Most siblings would keep it from draining at all.
    group = msgspec.structs.replace(group, nodes=(view,), requests=asked)
    if [pod for pod in upgrade_machine.decide(view, group, NOW).evict if pod.expendable]:
        assert {one.phase for one in group.requests} <= {RequestPhase.STOPPED, RequestPhase.ENDED}


@MANY
@given(walks(phases=(NodePhase.DRAINING,)))
def test_a_node_is_switched_off_only_when_every_gang_has_stopped_or_ended_and_no_pod_is_left(walk):
    view, group = walk
    if upgrade_machine.decide(view, group, NOW).phase is NodePhase.UNLOADING:
        assert {one.phase for one in group.requests} <= {RequestPhase.STOPPED, RequestPhase.ENDED}
        assert view.others == ()
        assert not any(one.phase in {NodePhase.PREPARED, NodePhase.TAINTING} for one in group.nodes)


@MANY
@given(walks(phases=(NodePhase.PREPARED,)))
def test_a_node_is_closed_only_when_every_gang_has_acknowledged_or_ended(walk):
    view, group = walk
    if upgrade_machine.decide(view, group, NOW).phase is NodePhase.TAINTING:
        assert {request.phase for request in group.requests} <= ACKNOWLEDGED
        assert len(group.requests) >= group.gangs


@MANY
@given(walks(phases=ACTIVE))
def test_a_node_upgrade_ends_without_its_mark_on_the_node_unless_a_person_must_look(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    if is_final(decision.phase) and decision.phase is not NodePhase.NODE_DELETED:
        marked = view.node is not None and view.node.claimed_by == view.uid
        assert not marked or decision.failure == "RevertFailed"


@MANY
@given(walks(phases=(NodePhase.VALIDATING,)))
def test_a_node_is_released_only_valid_and_with_all_its_siblings(walk):
    view, group = walk
    ahead = [one for one in group.nodes if one.phase is NodePhase.RELEASING and not one.failure and not one.reverting]
    if upgrade_machine.decide(view, group, NOW).phase is NodePhase.RELEASING:
        event(f"a sibling is ahead: {bool(ahead)}")
        assert view.validate.outcome is PodOutcome.SUCCEEDED or clearing.explain_no_validation(view)
        assert not missing_gpus(view)
        # One that left as valid had seen all of them valid: whoever still is goes with it and not with who turns now.
        assert view.reverting or ahead or not any(one.reverting for one in group.nodes)


@given(walks(phases=tuple(upgrade_machine.BEFORE_OFF)))
def test_an_undone_group_touches_nothing_more(walk):
    view, group = walk
    nodes = tuple(one for one in group.nodes if one.phase in upgrade_machine.BEFORE_OFF or is_final(one.phase))
    decision = upgrade_machine.decide(view, msgspec.structs.replace(group, nodes=nodes, undo=True), NOW)
    assert decision.acts == ()
    assert decision.phase in {view.phase, NodePhase.FAILED, NodePhase.RELEASING, NodePhase.NODE_DELETED}
    assert decision.phase is not view.phase
