"""Times on the wire and back: RFC 3339 in UTC, whole seconds as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta


def parse(text: str) -> datetime:
    """An aware datetime from an RFC 3339 time.

    Raises:
        ValueError: no such time.
    """
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError(f"time without zone: {text!r}")
    return value.astimezone(UTC)


def show(value: datetime) -> str:
    """RFC 3339 with Z, microseconds kept where there are some."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def after(value: datetime, seconds: float) -> datetime:
    """`seconds` later."""
    return value + timedelta(seconds=seconds)
