"""Durations as distributions: from medians and 95th percentiles of phases to those of a whole rollout.

A phase (prepare, checkpoint, upgrade, restart) is taken as lognormal: durations are positive and have a long tail, and
median and 95th percentile give both its parameters. From there:

- Siblings leave a phase together, so a group's phase is the *longest* of its nodes' (or gangs'): the maximum of n
  independent draws has the quantile function Q(u ** (1/n)), integrated here over equal steps of u.
- A group is the *sum* of its phases: means and variances add.
- A batch is the *longest* of its groups, each as the lognormal of its mean and variance: the product of their
  distribution functions, integrated over a grid of times.
- A rollout is the *sum* of its batches and of one more uncertainty: the medians themselves are estimates. Their
  relative error is sigma / sqrt(observations), the same for all batches, so it does not average out.

A sum's quantiles are those of the lognormal of its mean and variance (Fenton and Wilkinson's approximation).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from upgrader.core.model.prediction import Durations

_Z95 = NormalDist().inv_cdf(0.95)
_STEPS = 200
_LEVELS = tuple((step + 0.5) / _STEPS for step in range(_STEPS))
_GRID = tuple(20.0 * 1.12**step for step in range(90))
"""Seconds from 20 s to 5 days, 12 % apart: the curves between are smooth."""

PRIOR = 10
"""The number of observations that the defaults count for: with as many measurements, both weigh the same."""


class Spread(NamedTuple):
    """A duration by its mean and variance, in seconds and square seconds; sums of independent ones add up."""

    mean: float
    variance: float = 0.0

    def plus(self, other: "Spread") -> "Spread":
        """The sum of two independent durations, one after the other."""
        return Spread(self.mean + other.mean, self.variance + other.variance)

    def quantile(self, level: float) -> float:
        """Seconds within which it ends with probability `level`."""
        if self.mean <= 0:
            return 0.0
        sigma = math.sqrt(math.log1p(self.variance / self.mean**2))
        return self.mean * math.exp(sigma * NormalDist().inv_cdf(level) - sigma**2 / 2)


@lru_cache(maxsize=4096)
def longest_of(count: int, median: float, p95: float) -> Spread:
    """The longest of `count` independent lognormals with one median and 95th percentile; none of 0."""
    if count <= 0 or median <= 0:
        return Spread(0.0)
    sigma = _lognormal_sigma(median, p95)
    normal = NormalDist()
    drawn = [median * math.exp(sigma * normal.inv_cdf(level ** (1 / count))) for level in _LEVELS]
    mean = sum(drawn) / _STEPS
    return Spread(mean, sum((seconds - mean) ** 2 for seconds in drawn) / _STEPS)


def longest_of_spreads(parts: Iterable[Spread]) -> Spread:
    """The longest of independent durations."""
    return _longest_of_counts(tuple(sorted(Counter(parts).items())))


@lru_cache(maxsize=4096)
def _longest_of_counts(parts: tuple[tuple[Spread, int], ...]) -> Spread:
    if not parts:
        return Spread(0.0)
    logs = [0.0] * len(_GRID)
    for part, count in parts:
        logs = [log + count * more for log, more in zip(logs, _log_distribution(part), strict=True)]
    mean = square = before = 0.0
    earlier = 1.0
    for at, log in zip(_GRID, logs, strict=True):
        lasts = -math.expm1(log)  # the chance that it lasts longer than `at`
        mean += (at - before) * (earlier + lasts) / 2
        square += (at * at - before * before) * (earlier + lasts) / 2
        before, earlier = at, lasts
    return Spread(mean, max(0.0, square - mean * mean))


@lru_cache(maxsize=4096)
def _log_distribution(part: Spread) -> tuple[float, ...]:
    if part.mean <= 0:
        return (0.0,) * len(_GRID)
    sigma = max(1e-3, math.sqrt(math.log1p(part.variance / part.mean**2)))
    normal = NormalDist(math.log(part.mean) - sigma**2 / 2, sigma)
    return tuple(math.log(max(1e-300, normal.cdf(math.log(at)))) for at in _GRID)


def _lognormal_sigma(median: float, p95: float) -> float:
    return max(0.0, math.log(p95 / median) / _Z95) if median > 0 and p95 > 0 else 0.0


class GroupDurations(NamedTuple):
    """Durations of groups by their size."""

    durations: Durations

    def group_duration(self, *, nodes: int, gangs: int, checkpoint: tuple[float, float]) -> Spread:
        """From the start of its batch until its gangs run again, without turns of lanes."""
        prepare = self.preparation_duration(nodes)
        asked = longest_of(gangs, *checkpoint)
        return prepare.plus(asked).plus(self.upgrade_duration(nodes)).plus(self.restart_duration(gangs))

    def preparation_duration(self, nodes: int) -> Spread:
        """The preparation of nodes that wait for each other."""
        return longest_of(nodes, *self.durations.prepare)

    def upgrade_duration(self, nodes: int) -> Spread:
        """The upgrade of nodes that wait for each other."""
        return longest_of(nodes, *self.durations.upgrade)

    def restart_duration(self, gangs: int) -> Spread:
        """From the end of the upgrade until these gangs progress."""
        return longest_of(gangs, *self.durations.restart)

    def checkpoint_duration(self, longest: float) -> tuple[float, float]:
        """Median and 95th percentile of a checkpoint that is given up after `longest` seconds."""
        median, p95 = self.durations.checkpoint
        share = min(1.0, longest / p95) if p95 > 0 else 1.0
        return median * share, p95 * share

    @property
    def uncertainty(self) -> float:
        """The relative error of all medians, by the number of observations that they come from."""
        return _lognormal_sigma(*self.durations.upgrade) / math.sqrt(self.durations.measured + PRIOR)

    def rollout_duration(self, parts: Iterable[Spread]) -> Spread:
        """The duration of a rollout of these batches, with the error of the medians."""
        mean = variance = 0.0
        for part in parts:
            mean, variance = mean + part.mean, variance + part.variance
        return Spread(mean, variance + (mean * self.uncertainty) ** 2)


def measured_durations(
    upgrades: Sequence[float],
    *,
    checkpoints: Sequence[float] = (),
    restarts: Sequence[float] = (),
    preparations: Sequence[float] = (),
    default: Durations | None = None,
) -> Durations:
    """Durations from measurements, in seconds: of ended upgrades and requests of this stack.

    Lognormal; `default` counts for `PRIOR` observations, so that a single outlier has little effect and hundreds of
    measurements decide.
    """
    known = default or Durations()
    return Durations(
        prepare=_blend_with_default(known.prepare, preparations),
        upgrade=_blend_with_default(known.upgrade, upgrades),
        checkpoint=_blend_with_default(known.checkpoint, checkpoints),
        restart=_blend_with_default(known.restart, restarts),
        measured=known.measured + len(upgrades),
    )


def _blend_with_default(default: tuple[int, int], seen: Sequence[float]) -> tuple[int, int]:
    logs = [math.log(max(1.0, seconds)) for seconds in seen]
    before, sigma = math.log(default[0]), _lognormal_sigma(*default)
    count = len(logs) + PRIOR
    mean = (PRIOR * before + sum(logs)) / count
    spread = PRIOR * (sigma**2 + (before - mean) ** 2) + sum((log - mean) ** 2 for log in logs)
    return round(math.exp(mean)), round(math.exp(mean + _Z95 * math.sqrt(spread / count)))
