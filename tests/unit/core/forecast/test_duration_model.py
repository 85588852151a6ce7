"""Distributions of durations against the same thing drawn many times."""

import math
import random
import statistics

import pytest

from upgrader.core.forecast.duration_model import (
    PRIOR,
    GroupDurations,
    Spread,
    longest_of,
    longest_of_spreads,
    measured_durations,
)
from upgrader.core.model.prediction import Durations

DURATIONS = Durations()
Z95 = statistics.NormalDist().inv_cdf(0.95)


def drawn(chance, median, p95):
    return chance.lognormvariate(math.log(median), math.log(p95 / median) / Z95)


@pytest.mark.parametrize("count", [1, 2, 16, 128])
def test_the_longest_of_many(count):
    chance = random.Random(3)  # noqa: S311 - the same every time, no secret
    seen = [max(drawn(chance, 240, 600) for _ in range(count)) for _ in range(4000)]
    found = longest_of(count, 240, 600)
    assert found.mean == pytest.approx(statistics.mean(seen), rel=0.04)
    assert math.sqrt(found.variance) == pytest.approx(statistics.stdev(seen), rel=0.12)


def test_nothing_takes_no_time():
    assert longest_of(0, 240, 600) == Spread(0.0)
    assert longest_of_spreads([]) == Spread(0.0)
    assert Spread(0.0).quantile(0.95) == 0


def test_what_is_certain_takes_as_long_as_it_takes():
    assert longest_of(9, 60, 60) == Spread(pytest.approx(60), pytest.approx(0, abs=1e-6))
    assert Spread(60.0).quantile(0.95) == pytest.approx(60)


@pytest.mark.parametrize("groups", [[(1, 0)] * 30, [(1, 1)] * 10, [(16, 1), (2, 1), (1, 2)]])
def test_a_batch_is_the_longest_of_its_groups(groups):
    chance = random.Random(5)  # noqa: S311 - the same every time, no secret

    def slowest(count, phase):
        return max((drawn(chance, *phase) for _ in range(count)), default=0.0)

    def once(nodes, gangs):
        asked = slowest(gangs, DURATIONS.checkpoint) + slowest(gangs, DURATIONS.restart)
        return slowest(nodes, DURATIONS.prepare) + slowest(nodes, DURATIONS.upgrade) + asked

    seen = [max(once(*one) for one in groups) for _ in range(2000)]
    pace = GroupDurations(DURATIONS)
    found = longest_of_spreads(
        pace.group_duration(nodes=n, gangs=g, checkpoint=DURATIONS.checkpoint) for n, g in groups
    )
    assert found.mean == pytest.approx(statistics.mean(seen), rel=0.08)
    assert found.quantile(0.95) == pytest.approx(statistics.quantiles(seen, n=20)[18], rel=0.15)


def test_quantiles_of_a_whole_rollout_know_that_medians_are_estimates():
    batches = [Spread(1000.0, 200.0**2)] * 20
    sure = GroupDurations(Durations(measured=10_000)).rollout_duration(batches)
    guessed = GroupDurations(Durations()).rollout_duration(batches)
    assert sure.mean == guessed.mean == 20_000
    assert sure.quantile(0.95) == pytest.approx(20_000 + 1.645 * 200 * math.sqrt(20), rel=0.02)
    assert guessed.quantile(0.95) > sure.quantile(0.95)


def test_a_checkpoint_is_given_up_after_its_time_so_it_is_expected_to_be_shorter():
    pace = GroupDurations(DURATIONS)
    assert pace.checkpoint_duration(6000) == DURATIONS.checkpoint
    assert pace.checkpoint_duration(60) == (pytest.approx(12), pytest.approx(60))


def test_nothing_seen_is_nothing_learned():
    assert measured_durations([]) == DURATIONS


def test_one_odd_upgrade_moves_little_and_hundreds_decide():
    assert measured_durations([6000]).upgrade[0] < 400
    chance = random.Random(9)  # noqa: S311 - the same every time, no secret
    many = measured_durations([drawn(chance, 100, 150) for _ in range(1000)])
    assert many.upgrade == (pytest.approx(100, rel=0.03), pytest.approx(150, rel=0.12))
    assert (many.measured, many.checkpoint) == (1000, DURATIONS.checkpoint)


def test_as_much_seen_as_the_defaults_count_for_weighs_the_same():
    median = measured_durations([], restarts=[480] * PRIOR).restart[0]
    assert median == round(math.sqrt(120 * 480))


def test_what_was_learned_before_is_gone_on_from():
    before = measured_durations([300] * 50)
    assert measured_durations([300] * 10, default=before).measured == 60
