"""Times as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from upgrader.cli.base import humanize

NOW = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.6, "1m"),
        (61, "1m 01s"),
        (3600, "1h"),
        (3661, "1h 01m"),
        (90000, "1d 01h"),
        (86400 * 12 + 59, "12d"),
    ],
)
def test_how_long(seconds, text):
    assert humanize.show_duration(seconds) == text


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (0, "22:30 (now)"),
        (5400, "Sun 22 Nov 00:00 (+1h 30m)"),
        (60, "22:31 (+1m)"),
        (-60, "22:29 (-1m)"),
    ],
)
def test_a_clock_names_the_day_where_it_is_another(after, text):
    assert humanize.show_time(NOW + timedelta(seconds=after), NOW) == text


def test_times_are_those_of_this_machine(berlin):
    assert humanize.zone_name(NOW) == "CET (UTC+01:00)"
    assert humanize.show_time(NOW, NOW) == "23:30 (now)"
    assert humanize.show_time(NOW + timedelta(minutes=30), NOW) == "Sun 22 Nov 00:00 (+30m)"


def test_utc_is_called_so():
    assert humanize.zone_name(NOW) == "UTC"
