"""Turns in lanes: never more than fit, the longest first, and nobody for ever."""

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.checkpoint_request.admission_slots import Writer, admitted_requests, person_over
from upgrader_dev.simulated.cluster.ports import START


def writer(request, lane="fast", timeout=60, over=None, made=0, **more):
    turn_over = None if over is None else START + timedelta(seconds=over)
    at = START + timedelta(seconds=made)
    return Writer(request=request, lane=lane, timeout_seconds=timeout, turn_over=turn_over, made_at=at, **more)


def person(request, timeout=60, made=0, lane="fast"):
    asked = writer(request, lane=lane, timeout=timeout, made=made, by_person=True)
    return msgspec.structs.replace(asked, turn_over=person_over(asked))


def test_without_lanes_anybody_may():
    assert admitted_requests([writer("a"), writer("b")], 0, START) is None


def test_the_longest_is_first_and_names_break_ties():
    assert admitted_requests([writer("a"), writer("b", timeout=90)], 1, START) == {"b"}
    assert admitted_requests([writer("b"), writer("a")], 1, START) == {"a"}


def test_lanes_do_not_wait_for_each_other_and_who_names_none_shares_one():
    assert admitted_requests(
        [writer("a"), writer("b", lane="slow"), writer("c", lane=""), writer("d", lane="")], 1, START
    ) == {
        "a",
        "b",
        "c",
    }


def test_who_writes_keeps_its_turn_and_gives_its_place_back_when_it_took_too_long():
    assert admitted_requests([writer("a", over=1), writer("b", timeout=90)], 1, START) == {"a"}
    assert admitted_requests([writer("a", over=0), writer("b", timeout=90)], 1, START) == {"a", "b"}


def test_a_plan_waits_for_a_person_who_asked_before_it():
    assert admitted_requests([person("p", made=-5), writer("a")], 1, START) == frozenset()
    assert admitted_requests([person("p", made=-5), writer("a")], 2, START) == {"a"}
    assert admitted_requests([person("p", made=-5, lane="slow"), writer("a")], 1, START) == {"a"}
    assert admitted_requests([person("p", made=-60), writer("a")], 1, START) == {"a"}, (
        "its checkpoint may take no longer"
    )


def test_no_number_of_persons_puts_a_plan_off_for_ever():
    week, later = 7 * 24 * 3600, timedelta(minutes=10)
    before = [person(f"p{number}", timeout=week, made=-1) for number in range(9)]
    meanwhile = [person(f"q{number}", timeout=week, made=second) for number, second in enumerate(range(0, 600, 60))]
    assert admitted_requests([*before, *meanwhile, writer("a")], 1, START) == frozenset()
    assert admitted_requests([*before, *meanwhile, writer("a")], 1, START + later) == {"a"}


WRITERS = st.lists(
    st.tuples(st.sampled_from(("fast", "slow", "")), st.integers(1, 3600), st.none() | st.integers(-60, 60)),
    max_size=12,
).map(lambda rows: [writer(f"r{n}", lane, timeout, over) for n, (lane, timeout, over) in enumerate(rows)])


@given(WRITERS, st.integers(1, 4))
def test_never_more_are_let_in_than_fit_and_no_place_stays_free(writers, width):
    chosen = admitted_requests(writers, width, START)
    for lane in {one.lane for one in writers}:
        here = [one for one in writers if one.lane == lane]
        writing = [one for one in here if one.turn_over is not None and one.turn_over > START]
        new = [one for one in here if one.turn_over is None and one.request in chosen]
        waiting = [one for one in here if one.request not in chosen]
        assert not new or len(writing) + len(new) <= width
        assert not waiting or len(writing) + len(new) >= width
        assert all(a.timeout_seconds >= b.timeout_seconds for a in new for b in waiting)
