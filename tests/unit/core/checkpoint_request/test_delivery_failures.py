"""Misses in a row: counted by member, forgotten by those who heard it."""

from datetime import timedelta

from upgrader.core.checkpoint_request.delivery_failures import (
    PAUSE,
    Miss,
    count_misses,
    describe_ruled_out,
    is_too_soon,
)
from upgrader_dev.simulated.cluster.ports import START


def test_only_misses_in_a_row_count():
    first = count_misses((), {"b": "no answer", "a": "no such command"}, START)
    assert first == (
        Miss(pod_uid="a", at=START, why="no such command"),
        Miss(pod_uid="b", at=START, why="no answer"),
    )
    assert describe_ruled_out(first) == ""
    later = START + timedelta(seconds=7)
    second = count_misses(first, {"b": "again no answer"}, later)
    assert second == (Miss(pod_uid="b", at=later, times=2, why="again no answer"),)
    assert describe_ruled_out(second) == "again no answer"
    third = count_misses(count_misses(first, {"c": "x"}, later), {"b": "y"}, later)
    assert describe_ruled_out(third) == "", "b heard it in between"


def test_a_miss_is_left_to_pass_before_the_next_asking():
    misses = count_misses((), {"a": "no answer"}, START)
    assert is_too_soon(misses, START + PAUSE - timedelta(seconds=1))
    assert not is_too_soon(misses, START + PAUSE)
    assert not is_too_soon((), START)
