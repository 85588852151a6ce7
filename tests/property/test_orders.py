"""Leaping ahead and a person's orders, on views of every sort: what neither of them may do."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_laws import NOW, walks
from tests.property.test_laws_of_gangs import AROUND, gangs
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_machine import RESTARTED_EARLY, SWAPPING
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import Act

ORDERS = st.sets(st.sampled_from(NodePhase)).map(lambda steps: dict.fromkeys(steps, "forced by ann: agreed"))


@st.composite
def ordered(draw, phases=tuple(NodePhase)):
    """A node whose upgrade a person ordered to go on; pods that may go are those that are no gang's."""
    view, group = draw(walks(phases=phases))
    pods = tuple(msgspec.structs.replace(pod, forced=not pod.member and draw(st.booleans())) for pod in view.others)
    view = msgspec.structs.replace(view, others=pods, forced=draw(ORDERS))
    return view, msgspec.structs.replace(group, nodes=(view, *group.nodes[1:]))


@given(gangs(phases=(RequestPhase.STOPPED, RequestPhase.STOPPED, *RequestPhase)), AROUND, st.booleans())
def test_a_gang_leaps_ahead_only_when_we_stopped_it_and_no_node_waits_for_it(view, around, spares):
    around = msgspec.structs.replace(around, spares=spares)
    if request_machine.decide(view, around, NOW).reason == RESTARTED_EARLY:
        assert spares
        assert view.phase is RequestPhase.STOPPED
        assert set(around.nodes) <= SWAPPING
        assert view.owner.suspended


@given(ordered(phases=(NodePhase.TAINTING, NodePhase.DRAINING)))
def test_no_order_ends_a_pod_of_a_gang(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    assert not [pod for pod in decision.evict if pod.member]
    if decision.phase is NodePhase.UNLOADING:
        assert view.others == ()


@given(ordered(phases=tuple(one for one in NodePhase if one not in {NodePhase.DRAINING, NodePhase.RELEASING})))
def test_an_order_changes_nothing_in_any_other_step(walk):
    view, group = walk
    plain = msgspec.structs.replace(view, forced={})
    same = msgspec.structs.replace(group, nodes=(plain, *group.nodes[1:]))
    assert upgrade_machine.decide(view, group, NOW) == upgrade_machine.decide(plain, same, NOW)


@given(ordered(phases=(NodePhase.RELEASING,)))
def test_a_node_that_is_ordered_back_is_released_with_its_marks_taken(walk):
    view, group = walk
    decision = upgrade_machine.decide(view, group, NOW)
    if NodePhase.RELEASING in view.forced and view.node is not None:
        blocked = view.node.claimed_by == view.uid or (not view.node.claimed_by and view.node.released_by != view.uid)
        assert (decision.acts == (Act.RELEASE,)) is blocked
        assert blocked or decision.phase in {NodePhase.SUCCEEDED, NodePhase.FAILED}
