"""Limits of a stack's history: the newest plans and revisions are kept, and those that are still needed."""

from collections.abc import Iterable

from msgspec import Struct


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """An ended plan or an older revision."""

    name: str
    needed: bool = False


def names_beyond_limit(past: Iterable[HistoryEntry], limit: int) -> tuple[str, ...]:
    """Names to delete, given all of them oldest first: older than the newest `limit`, and not needed."""
    known = list(past)
    return tuple(old.name for old in known[: max(0, len(known) - limit)] if not old.needed)
