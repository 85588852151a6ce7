"""Pauses between askings in vain."""

from datetime import timedelta

import pytest

from upgrader.core.backoff import LONGEST, backoff_pause

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("times", "minutes"), [(0, 10), (1, 10), (2, 20), (3, 40), (4, 80), (5, 120), (10**9, 120)])
def test_it_doubles_up_to_two_hours(times: int, minutes: int) -> None:
    assert backoff_pause(10 * MINUTE, times) == minutes * MINUTE


def test_a_longer_first_pause_stays_as_it_is() -> None:
    assert backoff_pause(2 * LONGEST, 1) == backoff_pause(2 * LONGEST, 9) == 2 * LONGEST


@pytest.mark.parametrize("first", [timedelta(seconds=1), timedelta(days=7)])
def test_any_pause_reaches_its_limit_and_no_further(first: timedelta) -> None:
    assert backoff_pause(first, 10**9) == max(first, LONGEST)
