from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.model.operands import (
    COMPONENTS,
    NONDISRUPTIVE,
    Operand,
    OperandPod,
    OperandStanding,
    OperandState,
    PartPod,
    PartStanding,
    operand_standings,
    part_standing,
)

D, R, P, F, M = Operand
ALL_MANAGED = dict.fromkeys(Operand, True)


def pod(node, operand, **changes):
    return OperandPod(node=node, operand=operand, **{"ready": True, **changes})


def on(*nodes):
    return dict.fromkeys(Operand, frozenset(nodes))


def by_operand(found):
    return {one.operand: one for one in found}


def test_one_that_is_not_ready_holds_those_after_it_on_its_node_only():
    pods = [pod(node, operand) for node in ("a", "b") for operand in (D, R)]
    pods += [pod("a", P), pod("a", F), pod("a", M), pod("b", P, ready=False, trouble="ErrImagePull: no such image")]
    found = operand_standings(ALL_MANAGED, on("a", "b"), pods)
    assert found == (
        OperandStanding(operand=D, state=OperandState.READY, ready=2, wanted=2),
        OperandStanding(operand=R, state=OperandState.READY, ready=2, wanted=2),
        OperandStanding(
            operand=P, state=OperandState.WAITING, ready=1, wanted=2, message="b: ErrImagePull: no such image"
        ),
        OperandStanding(
            operand=F, state=OperandState.WAITING, ready=1, wanted=2, blocked=1, message="blocked by DevicePlugin on b"
        ),
        OperandStanding(
            operand=M, state=OperandState.WAITING, ready=1, wanted=2, blocked=1, message="blocked by DevicePlugin on b"
        ),
    )
    assert [one.shown for one in found] == ["2/2", "2/2", "1/2", "1/2", "1/2"]


def test_an_external_one_is_asked_about_nothing_and_holds_nobody():
    found = by_operand(operand_standings({D: True, P: False, F: True}, on("a"), [pod("a", D), pod("a", F)]))
    assert found[P] == OperandStanding(operand=P, state=OperandState.EXTERNAL)
    assert (found[P].shown, found[F].state) == ("External", OperandState.READY)


def test_where_no_node_should_have_one_there_is_nothing_to_wait_for():
    found = by_operand(operand_standings(ALL_MANAGED, {}, []))
    assert {one.state for one in found.values()} == {OperandState.NONE}


def test_a_pod_that_is_missing_is_said_and_many_are_counted():
    (first, *_) = operand_standings({D: True}, on(*"edcba"), [pod("a", D)])
    assert first.message == ("b: it has no pod; c: it has no pod; d: it has no pod and 1 more")


def test_of_two_pods_of_one_the_ready_one_counts_in_any_order():
    two = [pod("a", D, ready=False, trouble="old"), pod("a", D)]
    for pods in (two, two[::-1]):
        assert operand_standings({D: True}, on("a"), pods)[0].state is OperandState.READY


@given(
    ready=st.dictionaries(st.tuples(st.sampled_from("abcd"), st.sampled_from(Operand)), st.booleans()),
    managed=st.dictionaries(st.sampled_from(Operand), st.booleans()),
    nodes=st.frozensets(st.sampled_from("abcd")),
)
def test_every_node_is_ready_held_or_named_once(ready, managed, nodes):
    found = operand_standings(managed, on(*nodes), [pod(*at, ready=value) for at, value in ready.items()])
    assert [one.operand for one in found] == list(Operand)
    to_blame = 0
    for one in found:
        missing = one.wanted - one.ready
        assert 0 <= one.blocked <= missing
        assert one.ready == (
            sum(ready.get((node, one.operand), False) for node in nodes) if managed.get(one.operand) else 0
        )
        to_blame += missing - one.blocked
    waiting = {node for node in nodes for one in Operand if managed.get(one) and not ready.get((node, one), False)}
    assert to_blame == len(waiting)


def test_every_operand_has_pods_that_are_known_by_a_label():
    assert list(COMPONENTS.values()) == list(Operand)
    assert list(Operand)[-len(NONDISRUPTIVE) :] == [one for one in Operand if one in NONDISRUPTIVE]


# ------------------------------------------------------------------------------- beside the operands


def test_a_part_beside_them_is_counted_by_itself_and_says_where_it_is_not_ready_and_why():
    pods = [PartPod(node="a", ready=True), PartPod(node="b", trouble="no /etc/os-release"), PartPod(node="c")]
    said = "b: no /etc/os-release; c: it is starting; d: it has no pod"
    found = part_standing("abcd", pods)
    assert found == PartStanding(state=OperandState.WAITING, ready=1, wanted=4, message=said)
    assert found.shown == "1/4"


def test_a_part_without_nodes_waits_for_nothing_and_one_that_is_everywhere_has_nothing_to_say():
    assert part_standing("", [PartPod(node="a")]) == PartStanding(state=OperandState.NONE)
    ready = [PartPod(node="a", trouble="old"), PartPod(node="a", ready=True), PartPod(node="z")]
    for pods in (ready, ready[::-1]):
        assert part_standing("a", pods) == PartStanding(state=OperandState.READY, ready=1, wanted=1)
