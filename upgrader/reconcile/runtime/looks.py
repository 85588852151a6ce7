"""Times when open groups were last read from the API server, and not from watches.

This is kept in memory only: after a restart, a group is read once more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

ANEW = timedelta(seconds=30)
"""Longest wait of a group by watches alone, which bounds the delay by a watch that hangs."""


@dataclass
class Looks:
    """Times of the last reads, by group name."""

    read_at: dict[str, datetime] = field(default_factory=dict)

    def recent(self, name: str, now: datetime) -> bool:
        """Whether a group was read less than `ANEW` ago; a clock that is set back counts as no."""
        at = self.read_at.get(name)
        return at is not None and timedelta() <= now - at < ANEW

    def keep(self, name: str, now: datetime) -> None:
        """Record a read now; expired entries are dropped."""
        self.read_at = {known: at for known, at in self.read_at.items() if self.recent(known, now)} | {name: now}
