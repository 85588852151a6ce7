"""What stays is believed, what goes to and fro is not."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.support.facts import node
from upgrader.core.gpu_stack.debounce import FLAPS, STEADY, WINDOW, Observation, labels_seen, needs_seen, update_seen
from upgrader.core.gpu_stack.drift import DriftReason, Finding, NodeDrift
from upgrader_dev.simulated.cluster.ports import START


def after(*looks):
    """What is known after looks as (seconds, what)."""
    seen = None
    for seconds, what in looks:
        seen = update_seen(seen, what, START + timedelta(seconds=seconds))
    return seen


def test_nothing_is_remembered_of_what_never_differed():
    assert after((0, ""), (15, "")) is None


def test_what_stays_for_a_minute_is_steady():
    seen = after((0, "a"), (30, "a"), (59, "a"))
    assert seen == Observation(what="a", since=START)
    assert not seen.is_steady(START + timedelta(seconds=59))
    assert seen.is_steady(START + STEADY)


def test_a_change_begins_anew():
    seen = after((0, "a"), (50, "b"))
    assert not seen.is_steady(START + timedelta(seconds=100))
    assert seen.is_steady(START + timedelta(seconds=110))


def test_what_is_gone_is_not_steady_and_is_forgotten_in_the_end():
    seen = after((0, "a"), (10, ""))
    assert not seen.is_steady(START + timedelta(hours=1))
    assert after((0, "a"), (10, ""), (10 + WINDOW.total_seconds(), "")) is None


def test_what_flaps_has_to_stay_for_the_whole_window():
    flips = [(10 * one, "ab"[one % 2]) for one in range(FLAPS + 1)]
    last = flips[-1][0]
    assert after(*flips).is_flapping
    assert after(*flips, (last + STEADY.total_seconds(), "b")).is_steady(START + timedelta(hours=1)) is False
    calm = after(*flips, (last + WINDOW.total_seconds(), "b"))
    assert (calm.is_flapping, calm.is_steady(START + timedelta(seconds=last) + WINDOW)) == (False, True)


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from(["", "a", "b"])), max_size=30))
def test_nothing_is_steady_that_changed_within_a_minute(steps):
    seen, now, changed, before = None, START, START, ""
    for seconds, what in steps:
        now += timedelta(seconds=seconds)
        changed, before = (changed, before) if what == before else (now, what)
        seen = update_seen(seen, what, now)
        if seen is not None and seen.is_steady(now):
            assert now - changed >= STEADY
            assert what
            assert len(seen.changes) < FLAPS


def test_a_node_in_a_node_upgrade_shows_nothing():
    found = NodeDrift(node="a", findings=(Finding(reason=DriftReason.DRIVER, message="-"),))
    assert needs_seen(node("a", boot_id="b1"), found) == "b1 6.1.0-40-amd64 Driver"
    assert needs_seen(node("a", boot_id="b1", claimed_by="uid"), found) == ""
    assert needs_seen(node("a"), None) == ""


def test_labels_are_seen_where_they_disagree_only():
    disagrees = NodeDrift(
        node="a", findings=(Finding(reason=DriftReason.KERNEL_LABEL_DISAGREES, message="-", counts=False),)
    )
    stale = NodeDrift(node="a", findings=(Finding(reason=DriftReason.KERNEL_LABEL_STALE, message="-", counts=False),))
    one = node("a", boot_id="b1", kernel_label="x", driver_version_label="y")
    assert labels_seen(one, disagrees) == "b1 x y"
    assert (labels_seen(one, stale), labels_seen(one, None)) == ("", "")
