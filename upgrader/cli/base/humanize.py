"""Human-readable times and durations: the local time of this machine, and the offset from now."""

from datetime import datetime

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def show_duration(seconds: float) -> str:
    """A duration in its two largest units, as `2h 05m` or `30m`; 0 is `0s`."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if parts:
            return " ".join((*parts, f"{number:02}{unit}")) if number else parts[0]
        if number:
            parts.append(f"{number}{unit}")
    return parts[0] if parts else "0s"


def show_offset(at: datetime, since: datetime) -> str:
    """The offset from `since`, as `+1h 30m`; `now` if it is less than a second."""
    seconds = (at - since).total_seconds()
    return "now" if abs(seconds) < 1 else f"{'+' if seconds > 0 else '-'}{show_duration(abs(seconds))}"


def show_time(at: datetime, since: datetime) -> str:
    """The local time, with the day if it is not that of `since`, and the offset from `since`."""
    local, start = at.astimezone(), since.astimezone()
    form = "%H:%M" if local.date() == start.date() else "%a %d %b %H:%M"
    return f"{local:{form}} ({show_offset(at, since)})"


def zone_name(at: datetime) -> str:
    """The time zone of this machine, as `CET (UTC+01:00)`."""
    local = at.astimezone()
    return f"{local:%Z} (UTC{local.isoformat()[-6:]})" if local.utcoffset() else "UTC"
