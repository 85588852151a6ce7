"""Durations: drawn around a median with a 95th percentile, the same for every strategy of a seed.

A draw depends on the seed, on its subject and on the number of its repetitions, never on the order of events, so two
strategies get the same slow node.
"""

import math
import random
import statistics

from upgrader.simulate.fleets.fleet import FleetJob

PREPARE, UPGRADE = (60, 120), (240, 480)
"""Seconds, median and 95th percentile: the preparation of a node while its jobs run; from operands off to validated."""

CHECKPOINT_TAIL, RESTART_TAIL = 1.5, 1.3
"""95th percentile over the median of one job: the durations of one job vary less than those of different jobs."""

Z95 = statistics.NormalDist().inv_cdf(0.95)


class DurationSampler:
    """Draws of one run. `upgrade`: median and 95th percentile in seconds; without `spread` every draw is its median."""

    def __init__(self, seed: int, draw_upgrade: tuple[int, int] = UPGRADE, *, spread: bool = True) -> None:
        self._seed, self._spread, self._upgrade = seed, spread, draw_upgrade
        self._upgrades: dict[tuple[str, int], int] = {}

    def draw_upgrade(self, node: str, attempt: int = 0) -> int:
        """Seconds from switching a node's operands off until it is validated."""
        key = node, attempt
        if key not in self._upgrades:
            self._upgrades[key] = self.draw_seconds("upgrade", f"{node} {attempt}", *self._upgrade)
        return self._upgrades[key]

    def draw_checkpoint(self, job: FleetJob, attempt: int = 0) -> int:
        """Seconds from the request until all members are parked."""
        return self.draw_seconds(
            "checkpoint", f"{job.name} {attempt}", job.checkpoint, job.checkpoint * CHECKPOINT_TAIL
        )

    def draw_restart(self, job: FleetJob, attempt: int = 0) -> int:
        """Seconds from the assignment of nodes until training continues."""
        return self.draw_seconds("restart", f"{job.name} {attempt}", job.restart, job.restart * RESTART_TAIL)

    def draw_preparation(self, node: str) -> int:
        """Seconds of a node's preparation, while its jobs run."""
        return self.draw_seconds("prepare", node, *PREPARE)

    def draw_seconds(self, what: str, subject: str, median: float, p95: float) -> int:
        """A lognormal duration, in whole seconds, at least 1."""
        if not self._spread or p95 <= median:
            return max(1, round(median))
        chance = random.Random(f"{self._seed} {what} {subject}")  # noqa: S311 - reproducible, and not a secret
        return max(1, round(chance.lognormvariate(math.log(median), math.log(p95 / median) / Z95)))
