"""Pauses between requests to a gang that does not acknowledge: twice as long each time, up to a limit."""

from datetime import timedelta

LONGEST = timedelta(hours=2)
"""A gang that never acknowledges then costs its nodes little; a corrected gang still gets a request on the same day."""


def backoff_pause(first: timedelta, times: int) -> timedelta:
    """The pause after the n-th failed request in a row; a longer `first` is never shortened."""
    longest = max(first, LONGEST)
    doublings = min(
        max(0, times - 1), 16
    )  # by then a second has reached the limit, and a week is still within the calendar
    return min(longest, first * (1 << doublings))
