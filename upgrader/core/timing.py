"""Conversion of times: RFC 3339 in UTC, whole seconds as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta

from upgrader.core import untrusted
from upgrader.core.errors import UnreadableError


def parse_time(text: str) -> datetime:
    """An aware datetime from an RFC 3339 time.

    Raises:
        UnreadableError: no such time, or a time without an offset; see `untrusted.parse_instant`.
    """
    value = untrusted.parse_instant(text)
    if value is None:
        raise UnreadableError(
            f"{untrusted.quote_text(text)} is no time",
            resolution="Write one of the years 1970 to 8999 with its offset, such as 2026-11-21T18:00:00Z.",
        )
    return value


def format_time(value: datetime) -> str:
    """RFC 3339 with Z, with microseconds if there are any."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def add_seconds(value: datetime, seconds: float) -> datetime:
    """`seconds` later; beyond the calendar, its first or last moment."""
    try:
        return value + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if seconds > 0 else datetime.min.replace(tzinfo=UTC)
