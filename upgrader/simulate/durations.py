"""How long things take: drawn around a median with a 95th percentile, the same for every strategy of a seed.

A draw depends on the seed, on what it is about and on how often that was drawn before, never on the order of events, so
two strategies meet the same slow node.
"""

import math
import random
import statistics

from upgrader.simulate.fleets.fleet import SimJob

PREPARE, UPGRADE = (60, 120), (240, 480)
"""Seconds, median and 95th percentile: preparing a node while its jobs run; from operands off to validated."""

CHECKPOINT_TAIL, RESTART_TAIL = 1.5, 1.3
"""95th percentile over the median of one job: jobs differ much from each other, and less from themselves."""

Z95 = statistics.NormalDist().inv_cdf(0.95)


class Chances:
    """Draws of one run. `upgrade`: median and 95th percentile in seconds; without `spread` every draw is its median."""

    def __init__(self, seed: int, upgrade: tuple[int, int] = UPGRADE, *, spread: bool = True) -> None:
        self._seed, self._spread, self._upgrade = seed, spread, upgrade
        self._upgrades: dict[tuple[str, int], int] = {}

    def upgrade(self, node: str, attempt: int = 0) -> int:
        """Seconds from switching a node's operands off until it is validated."""
        key = node, attempt
        if key not in self._upgrades:
            self._upgrades[key] = self.draw("upgrade", f"{node} {attempt}", *self._upgrade)
        return self._upgrades[key]

    def checkpoint(self, job: SimJob, attempt: int = 0) -> int:
        """Seconds from the request until all members are parked."""
        return self.draw("checkpoint", f"{job.name} {attempt}", job.checkpoint, job.checkpoint * CHECKPOINT_TAIL)

    def restart(self, job: SimJob, attempt: int = 0) -> int:
        """Seconds from having nodes until training goes on."""
        return self.draw("restart", f"{job.name} {attempt}", job.restart, job.restart * RESTART_TAIL)

    def prepare(self, node: str) -> int:
        """Seconds that a node's preparation takes; jobs run on meanwhile."""
        return self.draw("prepare", node, *PREPARE)

    def draw(self, what: str, subject: str, median: float, p95: float) -> int:
        """Lognormal, in whole seconds from 1 on."""
        if not self._spread or p95 <= median:
            return max(1, round(median))
        chance = random.Random(f"{self._seed} {what} {subject}")  # noqa: S311 - the same every time, no secret
        return max(1, round(chance.lognormvariate(math.log(median), math.log(p95 / median) / Z95)))
