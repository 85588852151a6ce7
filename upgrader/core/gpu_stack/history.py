"""What of a stack's past is kept: the newest, and everything that something still depends on."""

from collections.abc import Iterable

from msgspec import Struct


class Past(Struct, frozen=True, kw_only=True):
    """An ended plan or an older revision."""

    name: str
    needed: bool = False


def beyond(past: Iterable[Past], limit: int) -> tuple[str, ...]:
    """Those that go, given all of them oldest first: what is older than the newest `limit`, and what nothing needs."""
    known = list(past)
    return tuple(one.name for one in known[: max(0, len(known) - limit)] if not one.needed)
