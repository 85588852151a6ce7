"""When what is under way was last read from the API server itself, and not from what watches show.

This lives in memory on purpose: forgetting it only makes one read once more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

ANEW = timedelta(seconds=30)
"""For so long a group may wait by what watches show alone: one that hangs without a word delays no act for longer."""


@dataclass
class Looks:
    """Groups by name, each with when it was last read."""

    read_at: dict[str, datetime] = field(default_factory=dict)

    def recent(self, name: str, now: datetime) -> bool:
        """Whether it was read less than `ANEW` ago; a clock set back ends that too."""
        at = self.read_at.get(name)
        return at is not None and timedelta() <= now - at < ANEW

    def keep(self, name: str, now: datetime) -> None:
        """Remember that it is read now; what was read longer ago than counts goes."""
        self.read_at = {one: at for one, at in self.read_at.items() if self.recent(one, now)} | {name: now}
