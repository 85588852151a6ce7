"""How long a gang that was asked in vain is left alone: twice as long each time, up to a limit."""

from datetime import timedelta

LONGEST = timedelta(hours=2)
"""A gang that never acknowledges costs its nodes little then; one that is put right is still asked the same day."""


def pause(first: timedelta, times: int) -> timedelta:
    """The pause after it was asked in vain for the n-th time in a row; a longer `first` is never made shorter."""
    longest = max(first, LONGEST)
    doublings = min(max(0, times - 1), 16)  # a second has reached the limit then, and a week has not left the calendar
    return min(longest, first * (1 << doublings))
