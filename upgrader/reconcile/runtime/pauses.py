"""Recent failures that are not retried before a pause is over.

This is kept in memory only: after a restart, the action is tried once more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from upgrader.core.errors import UpgraderError


@dataclass
class Pauses:
    """Recent failures by key, each with its time."""

    pause: timedelta
    failures: dict[str, tuple[datetime, UpgraderError]] = field(default_factory=dict)

    def failure(self, key: str, now: datetime) -> UpgraderError | None:
        """The failure whose pause is not over, else None. A clock that is set back ends the pause."""
        failed = self.failures.get(key)
        return failed[1] if failed is not None and timedelta() <= now - failed[0] < self.pause else None

    def keep(self, key: str, error: UpgraderError, now: datetime) -> None:
        """Record a failure; expired failures are dropped."""
        left = {name: kept for name, kept in self.failures.items() if now - kept[0] < self.pause}
        self.failures = left | {key: (now, error)}
