"""Damping: a node with a new kernel is believed when it was seen so twice on the same boot.

This lives in memory on purpose: forgetting it only makes one wait a little longer.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from upgrader.core.fleet import NodeFacts


@dataclass
class Sightings:
    """First sightings by node uid: on which boot, with which kernel, when."""

    first: dict[tuple[str, str], tuple[str, str, datetime]] = field(default_factory=dict)

    def twice(self, stack: str, node: NodeFacts, now: datetime, apart_seconds: float) -> bool:
        """Whether this very boot and kernel were seen before, at least `apart_seconds` ago."""
        key, seen = (stack, node.uid), (node.boot_id, node.kernel)
        before = self.first.get(key)
        if before is None or before[:2] != seen:
            self.first[key] = (*seen, now)
            return False
        return now - before[2] >= timedelta(seconds=apart_seconds)

    def waiting(self, stack: str) -> bool:
        """Whether some node of the stack was seen once and should be looked at again soon."""
        return any(key[0] == stack for key in self.first)
