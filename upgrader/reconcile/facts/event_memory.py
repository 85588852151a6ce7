"""Recently read Events, and since when pods are missing, which bounds the rate of reads in every case.

This is kept in memory only: after a restart, an explanation takes a little longer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

AGAIN = timedelta(seconds=30)
"""Minimum interval between two reads of the Events of one object."""
AT_ONCE = 3
"""Objects whose Events are read in a second at most, over all stacks, plans and upgrades."""
_KEPT = timedelta(minutes=10)


@dataclass
class EventMemory:
    """By object the last text and its time; by stack and part the nodes without a pod, and since when."""

    messages: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    missing: dict[tuple[str, str], dict[str, datetime]] = field(default_factory=dict)

    def is_due(self, key: str, now: datetime) -> bool:
        """Whether to read the Events of an object now."""
        if key in self.messages and now - self.messages[key][1] < AGAIN:
            return False
        return sum(now - at < timedelta(seconds=1) for _, at in self.messages.values()) < AT_ONCE

    def message_of(self, key: str) -> str | None:
        """The last text; None if Events were not read."""
        return self.messages[key][0] if key in self.messages else None

    def keep_message(self, key: str, message: str, now: datetime) -> None:
        """Record a text, and drop expired ones."""
        self.messages = {known: kept for known, kept in self.messages.items() if now - kept[1] < _KEPT} | {
            key: (message, now)
        }

    def nodes_without_pod(self, stack: str, part: str, nodes: Iterable[str], now: datetime) -> dict[str, datetime]:
        """The nodes of a stack without a pod of a part, each with since when; other nodes are dropped."""
        before = self.missing.get((stack, part), {})
        missing = {node: before.get(node, now) for node in nodes}
        self.missing[stack, part] = missing
        return missing

    def forget_stack(self, stack: str) -> None:
        """Drop a deleted stack."""
        self.missing = {key: nodes for key, nodes in self.missing.items() if key[0] != stack}
