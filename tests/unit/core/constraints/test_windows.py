from datetime import UTC, datetime, timedelta

import pytest

from upgrader.core.constraints.windows import Calendar
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.strategy import Weekday, Window

BERLIN = "Europe/Berlin"


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


CASES = {
    "open now": (Window(start="08:00", end="10:00"), "2026-11-21T09:00", "2026-11-21T09:00"),
    "opens later": (Window(start="22:00", end="23:00"), "2026-11-21T09:00", "2026-11-21T22:00"),
    "closed just now": (Window(start="08:00", end="09:00"), "2026-11-21T09:00", "2026-11-22T08:00"),
    "over midnight, after it": (Window(start="22:00", end="04:00"), "2026-11-21T03:59", "2026-11-21T03:59"),
    "over midnight, closed": (Window(start="22:00", end="04:00"), "2026-11-21T04:00", "2026-11-21T22:00"),
    "on Tuesdays": (
        Window(days=(Weekday.TUESDAY,), start="01:00", end="02:00"),
        "2026-11-21T09:00",
        "2026-11-24T01:00",
    ),
    "all day": (Window(), "2026-11-21T09:00", "2026-11-21T09:00"),
    "in its own zone": (Window(start="01:00", end="05:00", time_zone=BERLIN), "2026-11-21T09:00", "2026-11-22T00:00"),
    "in summer": (Window(start="01:00", end="05:00", time_zone=BERLIN), "2026-07-01T09:00", "2026-07-01T23:00"),
    # Clocks go forward on 2027-03-28 at 02:00 in Berlin (01:00 UTC), back on 2026-10-25 at 03:00 (01:00 UTC).
    "over the hour that is not": (
        Window(start="01:30", end="03:30", time_zone=BERLIN),
        "2027-03-27T12:00",
        "2027-03-28T00:30",
    ),
    "opens in the hour that is not": (
        Window(start="02:30", end="05:00", time_zone=BERLIN),
        "2027-03-27T12:00",
        "2027-03-28T01:30",
    ),
    "ends before it opens that day": (
        Window(start="02:30", end="03:00", time_zone=BERLIN),
        "2027-03-27T12:00",
        "2027-03-29T00:30",
    ),
    "opens in the hour that comes twice": (
        Window(start="02:30", end="02:45", time_zone=BERLIN),
        "2026-10-24T12:00",
        "2026-10-25T00:30",
    ),
    "the second of two hours is closed": (
        Window(start="02:30", end="02:45", time_zone=BERLIN),
        "2026-10-25T01:35",
        "2026-10-26T01:30",
    ),
    "a day ahead of everybody": (
        Window(days=(Weekday.MONDAY,), start="08:00", end="09:00", time_zone="Pacific/Auckland"),
        "2026-11-21T09:00",
        "2026-11-22T19:00",
    ),
}


@pytest.mark.parametrize(("window", "now", "opens"), CASES.values(), ids=CASES.keys())
def test_when_it_opens(window, now, opens):
    assert Calendar([window], at(now)).next_opening(at(now)) == at(opens)


def test_a_window_that_ends_after_the_clocks_went_forward_is_an_hour_shorter():
    calendar = Calendar([Window(start="01:30", end="03:30", time_zone=BERLIN)], at("2027-03-27T12:00"))
    assert calendar.next_opening(at("2027-03-28T01:29")) == at("2027-03-28T01:29")
    assert calendar.next_opening(at("2027-03-28T01:30")) == at("2027-03-28T23:30")


def test_without_windows_it_is_always_open():
    now = at("2026-11-21T09:00")
    assert Calendar([], now).next_opening(now) == now


def test_windows_that_touch_are_one():
    now = at("2026-11-21T09:00")
    calendar = Calendar([Window(start="10:00", end="12:00"), Window(start="12:00", end="13:00")], now)
    assert calendar.next_opening(at("2026-11-21T12:00")) == at("2026-11-21T12:00")
    assert calendar.next_opening(at("2026-11-21T13:00")) == at("2026-11-22T10:00")


def test_years_ahead_it_goes_on_by_weeks():
    now = at("2026-11-21T09:00")
    calendar = Calendar([Window(days=(Weekday.SATURDAY,), start="10:00", end="12:00")], now)
    later = now + timedelta(days=1000)
    opens = calendar.next_opening(later)
    assert (opens.weekday(), opens.hour) == (5, 10)
    assert timedelta() < opens - later <= timedelta(days=7)


@pytest.mark.parametrize(
    ("window", "says"),
    {
        "no such zone": (Window(time_zone="Europe/Atlantis"), "there is no time zone 'Europe/Atlantis'"),
        "a path": (Window(time_zone="../etc"), "there is no time zone '../etc'"),
        "no such time": (Window(start="25:00"), "a window's time is '25:00'"),
    }.values(),
)
def test_what_is_no_window(window, says):
    with pytest.raises(ConfigurationError) as caught:
        Calendar([window], at("2026-11-21T09:00"))
    assert caught.value.brief == says
    assert caught.value.resolution
