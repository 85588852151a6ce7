"""What Events said a moment ago, and since when pods are missing: so that asking stays rare, whatever goes wrong.

This lives in memory on purpose: forgetting it only makes one wait a little longer, and ask again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

AGAIN = timedelta(seconds=30)
"""Events are asked of one object no sooner than this after the last time."""
AT_ONCE = 3
"""Objects that are asked of in a second, of however many stacks, plans and upgrades."""
_KEPT = timedelta(minutes=10)


@dataclass
class Heard:
    """By object what was said and when; by stack and part the nodes that lack a pod, and since when."""

    said: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    missing: dict[tuple[str, str], dict[str, datetime]] = field(default_factory=dict)

    def due(self, key: str, now: datetime) -> bool:
        """Whether to ask of an object now."""
        if key in self.said and now - self.said[key][1] < AGAIN:
            return False
        return sum(now - at < timedelta(seconds=1) for _, at in self.said.values()) < AT_ONCE

    def of(self, key: str) -> str | None:
        """What was said last; None where nobody was asked."""
        return self.said[key][0] if key in self.said else None

    def keep(self, key: str, said: str, now: datetime) -> None:
        """Remember an answer, and forget those of objects that nobody asks of any more."""
        self.said = {one: kept for one, kept in self.said.items() if now - kept[1] < _KEPT} | {key: (said, now)}

    def lacking(self, stack: str, part: str, nodes: Iterable[str], now: datetime) -> dict[str, datetime]:
        """The nodes of a stack on which no pod of a part is, each with since when; forgets every other."""
        before = self.missing.get((stack, part), {})
        found = {node: before.get(node, now) for node in nodes}
        self.missing[stack, part] = found
        return found

    def forget(self, stack: str) -> None:
        """The stack is no more."""
        self.missing = {key: nodes for key, nodes in self.missing.items() if key[0] != stack}
