import pytest

from upgrader.core.constraints.batch import GroupForecast
from upgrader.core.constraints.checkpoint_concurrency import LaneRequest, parked_seconds, request_offsets
from upgrader.core.forecast.bin_packing import (
    Rules,
    Score,
    Unit,
    batch_of,
    best_course,
    improve_batches,
    in_turn,
    pack_units,
    resume_batches,
    score_batches,
)
from upgrader.core.forecast.duration_model import Spread


def unit(name, gpus, mean=600.0, release=0):
    group = GroupForecast(name=name, nodes=(name,), gpus=gpus, added=gpus)
    spread = Spread(mean, (mean / 10) ** 2)
    return Unit(group=group, demands=(("gpus", gpus),), spread=spread, order=(-gpus, name), release=release)


def rules(gpus):
    return Rules(rooms={"gpus": gpus}, opens=lambda at: at)


def names(batches):
    return [sorted(one.group.name for one in batch.units) for batch in batches]


def test_first_fit_decreasing():
    units = [unit("a", 6), unit("b", 5), unit("c", 4), unit("d", 3), unit("e", 2)]
    assert names(pack_units(units, rules(10), 0)) == [["a", "c"], ["b", "d", "e"]]


def test_what_may_not_start_yet_delays_nobody():
    units = [unit("big", 10, release=5000), unit("small", 1), unit("later", 1, release=5000)]
    assert names(pack_units(units, rules(11), 0)) == [["small"], ["big", "later"]]


def test_what_fits_no_batch_is_a_fault_of_the_caller():
    with pytest.raises(AssertionError, match="big fits no batch"):
        pack_units([unit("big", 11)], rules(10), 0)


def test_in_turn_nobody_is_overtaken():
    units = [unit("a", 4), unit("b", 7), unit("c", 3), unit("d", 2, release=5000), unit("e", 1)]
    batches = in_turn(units, rules(10), 0)
    assert names(batches) == [["a"], ["b", "c"], ["d", "e"]]
    assert in_turn([], rules(10), 0) == []
    with pytest.raises(AssertionError, match="big fits no batch"):
        in_turn([unit("big", 11)], rules(10), 0)


def test_a_batch_that_others_can_take_is_dissolved():
    loose = [batch_of([unit("a", 6)], rules(10)), batch_of([unit("b", 4)], rules(10))]
    assert names(improve_batches(loose, rules(10), 0)) == [["a", "b"]]


def test_long_ones_are_put_together():
    slow, quick = [unit(f"s{n}", 5, 3000.0) for n in range(2)], [unit(f"q{n}", 5, 300.0) for n in range(2)]
    mixed = [batch_of(pair, rules(10)) for pair in zip(slow, quick, strict=True)]
    assert names(improve_batches(mixed, rules(10), 0)) == [["q0", "q1"], ["s0", "s1"]]


def test_no_step_breaks_a_limit_or_makes_anything_worse():
    units = [unit(f"u{n}", 1 + n % 7, 300.0 + 97 * (n % 5), release=200 * (n % 3)) for n in range(40)]
    before = pack_units(units, rules(12), 0)
    after = improve_batches(before, rules(12), 0)
    assert sorted(name for batch in names(after) for name in batch) == sorted(one.group.name for one in units)
    assert all(sum(one.group.gpus for one in batch.units) <= 12 for batch in after)
    assert score_batches(after, rules(12), 0).end <= score_batches(before, rules(12), 0).end


def test_an_improvement_makes_nothing_worse():
    best = Score(parked=5, end=5)
    assert [best.improves(other) for other in (best, Score(parked=5, end=6), Score(parked=4, end=9))] == [
        False,
        True,
        False,
    ]


def test_the_earlier_course_is_gone_on_with():
    units = [unit(name, 5) for name in "abcd"]
    before = [[("d",), ("a",)], [("gone",), ("b",)]]
    assert names(resume_batches(units, before, rules(10), 0)) == [["a", "d"], ["b", "c"]]
    assert names(best_course(units, before, rules(10), 0)) == [["a", "d"], ["b", "c"]]
    assert names(best_course(units, [[("a",)], [("b",)], [("c",)], [("d",)]], rules(10), 0)) != [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
    ]


def test_an_earlier_batch_that_the_budget_no_longer_allows_is_parted():
    units = [unit(name, 5) for name in "ab"]
    assert names(resume_batches(units, [[("a",), ("b",)]], rules(5), 0)) == [["a"], ["b"]]


ASKED = [
    LaneRequest(gang=name, lane=lane, seconds=seconds)
    for name, lane, seconds in (
        ("short", "fast", 60.0),
        ("long", "fast", 300.0),
        ("middle", "fast", 120.0),
        ("other", "slow", 10.0),
    )
]


def test_the_longest_checkpoint_is_asked_first_in_each_lane():
    assert request_offsets(ASKED, 1) == {"long": 0, "middle": 300, "short": 420, "other": 0}
    assert request_offsets(ASKED, 2) == {"long": 0, "middle": 0, "short": 120, "other": 0}
    assert set(request_offsets(ASKED, 0).values()) == {0}


def test_who_has_parked_waits_for_the_last_of_its_group():
    assert parked_seconds(ASKED, request_offsets(ASKED, 1)) == {"long": 180, "middle": 60, "short": 0, "other": 470}
    alone = [LaneRequest(gang=one.gang, lane=one.lane, seconds=one.seconds, group=at) for at, one in enumerate(ASKED)]
    assert set(parked_seconds(alone, request_offsets(alone, 1)).values()) == {0}
