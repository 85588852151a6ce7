"""What of the past goes, and what stays whatever the limit says."""

from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.gpu_stack.history import HistoryEntry, names_beyond_limit

PAST = st.lists(st.booleans(), max_size=8).map(
    lambda flags: [HistoryEntry(name=f"p{number}", needed=flag) for number, flag in enumerate(flags)]
)


def test_the_oldest_that_nothing_needs_go_first():
    past = [HistoryEntry(name="a", needed=True), HistoryEntry(name="b"), HistoryEntry(name="c"), HistoryEntry(name="d")]
    assert (names_beyond_limit(past, 2), names_beyond_limit(past, 1), names_beyond_limit(past, 4)) == (
        ("b",),
        ("b", "c"),
        (),
    )


@given(PAST, st.integers(1, 8))
def test_what_is_needed_stays_and_so_do_the_newest(past, limit):
    left = [one for one in past if one.name not in names_beyond_limit(past, limit)]
    assert [one for one in left if not one.needed] == [one for one in past[-limit:] if not one.needed]
    assert {one.name for one in past if one.needed} <= {one.name for one in left}
