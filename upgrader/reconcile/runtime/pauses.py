"""What failed a moment ago, and is not tried again before a pause is over.

This lives in memory on purpose: forgetting it only makes one try once more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from upgrader.core.errors import UpgraderError


@dataclass
class Pauses:
    """Failures of the last seconds by what was tried, each with when it ended."""

    pause: timedelta
    failures: dict[str, tuple[datetime, UpgraderError]] = field(default_factory=dict)

    def failure(self, key: str, now: datetime) -> UpgraderError | None:
        """The failure whose pause is not over; None where it is, or nothing failed. A clock set back ends it too."""
        found = self.failures.get(key)
        return found[1] if found is not None and timedelta() <= now - found[0] < self.pause else None

    def keep(self, key: str, error: UpgraderError, now: datetime) -> None:
        """Remember a failure that has just ended; those whose pause is over go."""
        left = {name: kept for name, kept in self.failures.items() if now - kept[0] < self.pause}
        self.failures = left | {key: (now, error)}
