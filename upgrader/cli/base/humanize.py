"""Times and spans of time as people read them: the clock of this machine, and how long from now."""

from datetime import datetime

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def lasting(seconds: float) -> str:
    """The two largest units, as `2h 05m`, `30m`; 0 is `0s`."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if parts:
            return " ".join((*parts, f"{number:02}{unit}")) if number else parts[0]
        if number:
            parts.append(f"{number}{unit}")
    return parts[0] if parts else "0s"


def offset(at: datetime, since: datetime) -> str:
    """How long after `since`, as `+1h 30m`; `now` within a second."""
    seconds = (at - since).total_seconds()
    return "now" if abs(seconds) < 1 else f"{'+' if seconds > 0 else '-'}{lasting(abs(seconds))}"


def clock(at: datetime, since: datetime) -> str:
    """The local clock, with the day where it is not that of `since`, and how long from then."""
    local, start = at.astimezone(), since.astimezone()
    form = "%H:%M" if local.date() == start.date() else "%a %d %b %H:%M"
    return f"{local:{form}} ({offset(at, since)})"


def zone(at: datetime) -> str:
    """Of this machine's clock, as `CET (UTC+01:00)`."""
    local = at.astimezone()
    return f"{local:%Z} (UTC{local.isoformat()[-6:]})" if local.utcoffset() else "UTC"
