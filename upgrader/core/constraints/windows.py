"""Windows: when batches may start, in the time zone of each window.

A window opens on the days of its zone's calendar at the zone's wall clock, so it moves with daylight saving time.
If the clock jumps forward over the opening, the window opens as much later as the clock jumped (and not at all if that
is after its end); if an hour repeats, its first occurrence counts for both ends. A window that closes does not stop
batches that have started.
"""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from upgrader.core.errors import ConfigurationError
from upgrader.core.model.strategy import Weekday, Window

_DAYS = tuple(Weekday)
_DAYS_AHEAD = 400
"""How far ahead openings are computed: longer than any rollout, and past every change of the clocks."""


class Calendar:
    """The openings of some windows from `begin` on, merged where they touch; without windows it is always open.

    Raises:
        ConfigurationError: a time or a time zone that does not exist.
    """

    def __init__(self, windows: Iterable[Window], begin: datetime) -> None:
        windows = tuple(windows)
        self._always = not windows
        self._open = _merged_openings(windows, begin.astimezone(UTC).date())

    def next_opening(self, at: datetime) -> datetime:
        """The earliest moment from `at` on in which a batch may start (times up to a year after `begin`)."""
        if self._always:
            return at
        index = bisect_right(self._open, at, key=lambda span: span[0])
        if index and at < self._open[index - 1][1]:
            return at
        if index == len(self._open):  # more than a year ahead: the same days repeat
            return self._open[-1][0] + timedelta(days=7 * (1 + (at - self._open[-1][0]) // timedelta(days=7)))
        return self._open[index][0]


@lru_cache(maxsize=64)
def _merged_openings(windows: tuple[Window, ...], begin: date) -> tuple[tuple[datetime, datetime], ...]:
    """Openings from the day before `begin` on; cached, since a plan forecasts every few seconds with these windows."""
    merged: list[tuple[datetime, datetime]] = []
    for start, end in sorted(span for window in windows for span in _window_spans(window, begin)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _window_spans(window: Window, begin: date) -> Iterable[tuple[datetime, datetime]]:
    zone, start, end = _time_zone(window), _wall_clock(window.start), _wall_clock(window.end)
    first = begin - timedelta(days=2)  # a zone's day may be one behind, and a window of the day before may be open
    for number in range(_DAYS_AHEAD):
        day = first + timedelta(days=number)
        if window.days and _DAYS[day.weekday()] not in window.days:
            continue
        opens = _utc_moment(day, start, zone)
        closes = _utc_moment(day if end > start else day + timedelta(days=1), end, zone)
        if opens < closes:
            yield opens, closes


def _utc_moment(day: date, at: time, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, at, tzinfo=zone).astimezone(UTC)


def _time_zone(window: Window) -> ZoneInfo:
    try:
        return ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"there is no time zone {window.time_zone!r}", resolution="Give an IANA name, such as Europe/Berlin or UTC."
        ) from error


def _wall_clock(text: str) -> time:
    try:
        return datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007 - a wall clock; its zone is added later
    except ValueError as error:
        raise ConfigurationError(
            f"a window's time is {text!r}", resolution="Give hours and minutes, such as 22:00."
        ) from error
