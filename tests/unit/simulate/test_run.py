"""Whole rollouts of fleets that are small enough to be worked out by hand."""

import msgspec
import pytest

from tests.support.simulated import HOUR, fleet, job, rollout, walk
from upgrader.core.errors import ConfigurationError
from upgrader.simulate.fleets.drawn_fleet import FleetSpec, make_fleet
from upgrader.simulate.result import Result
from upgrader.simulate.run import simulate_rollout
from upgrader.simulate.settings import SimulatedStrategy, SimulationSettings

NO_LOSS = {
    "interruptions": 0,
    "gangs_interrupted": 0,
    "most_interruptions": 0,
    "gangs_gpu_hours": 0.0,
    "thrown_away_gpu_hours": 0.0,
    "idle_gpu_hours": 0.0,
}


def facts(result, *left_out):
    found = msgspec.structs.asdict(result)
    return {name: value for name, value in found.items() if name not in left_out}


def test_an_idle_node_goes_through_all_phases_at_the_seconds_that_its_node_pods_take():
    """Preparing takes 60 s, upgrading 100 s, a tenth of it until the operands are gone, four for the upgrade Job, three
    for switching on, two for validation; each look is a second after what it sees, and a taint settles for 5 s.
    """
    simulation = rollout(fleet("n1"))
    assert walk(simulation) == [
        (1, "n1", "Pending"),
        (2, "n1", "Preparing"),
        (64, "n1", "Prepared"),
        (65, "n1", "Tainting"),
        (71, "n1", "Draining"),
        (72, "n1", "Unloading"),
        (84, "n1", "Upgrading"),
        (126, "n1", "Loading"),
        (159, "n1", "Validating"),
        (181, "n1", "Releasing"),
        (183, "n1", "Succeeded"),
    ]
    lost = (182 - 66) * 8 / HOUR  # tainted at 66, released at 182
    assert facts(simulation.make_result(), "predicted") == {
        "fleet": "tiny",
        "strategy": "upgrader",
        "seed": 0,
        "nodes": 1,
        "gpus": 8,
        "jobs": 0,
        "upgraded": 1,
        "left": 0,
        "seconds": 185,
        "ended": "Completed: every node is on the target revision",
        "lost_gpu_hours": pytest.approx(lost),
        "upgrades_gpu_hours": pytest.approx(lost),
        "lower_bound_gpu_hours": pytest.approx(100 * 8 / HOUR),
        "batches": 1,
        **NO_LOSS,
    }


def test_a_gang_is_asked_when_its_nodes_are_prepared_and_stopped_once():
    """Asked at 65 and parked at 185; tainted from 188 to 314; placed again at 313, and training 60 s later."""
    simulation = rollout(fleet("n1", "n2", jobs=(job("train", "n1", "n2"),)))
    request = [(at, phase) for at, name, phase in walk(simulation) if name.startswith("train")]
    assert request == [(65, "Requested"), (186, "Parked"), (194, "Stopping"), (201, "Stopped"), (312, "Restarting"),
                    (374, "Restored")]  # fmt: skip
    result = simulation.make_result()
    upgrades, beyond = (314 - 188) * 16 / HOUR, (188 - 65 + 373 - 314) * 16 / HOUR
    assert (result.interruptions, result.most_interruptions) == (1, 1)
    assert result.upgrades_gpu_hours == pytest.approx(upgrades)
    assert result.gangs_gpu_hours == pytest.approx(beyond)
    assert result.lost_gpu_hours == pytest.approx(upgrades + beyond)
    assert result.lower_bound_gpu_hours == pytest.approx((100 + 120 + 60) * 16 / HOUR)


def test_kill_stops_the_gang_for_each_of_its_nodes_and_throws_its_work_away():
    """One of two nodes at a time. The gang is half an hour past its own last checkpoint, which is lost; it waits for
    the node, trains, and is stopped for the other.
    """
    made = fleet("n1", "n2", jobs=(job("train", "n1", "n2", start=-9 * HOUR - 1800, restart=1),))
    result = rollout(made, SimulatedStrategy.KILL, budget="50%").run()
    assert (result.upgraded, result.interruptions, result.most_interruptions) == (2, 2, 2)
    assert result.seconds is not None
    assert result.thrown_away_gpu_hours == pytest.approx(16 * (1800 + 6) / HOUR, abs=0.1)
    assert result.idle_gpu_hours == 0


def test_kill_restarts_a_gang_on_a_spare_node_at_once():
    made = fleet("n1", "n2", "n3", jobs=(job("train", "n3"),))
    simulation = rollout(made, SimulatedStrategy.KILL, budget="34%")  # rounded up: two nodes
    assert simulation.run().interruptions == 1
    assert simulation.world.jobs["train"].places == ("n1",)


def test_wait_keeps_the_rest_of_a_node_idle_until_its_job_ends():
    """Cordoned 4 s after the begin (two labels), the job has half of the node and ends after an hour."""
    made = fleet("n1", jobs=(job("train", "n1", gpus=4, end=HOUR),))
    result = rollout(made, SimulatedStrategy.WAIT).run()
    assert result.interruptions == 0
    assert result.idle_gpu_hours == pytest.approx(4 * (HOUR - 4) / HOUR, abs=0.01)
    assert result.upgrades_gpu_hours == pytest.approx(8 * 105 / HOUR, abs=0.01)
    assert result.seconds == pytest.approx(HOUR + 105, abs=5)


def test_wait_never_ends_where_a_job_does_not():
    result = rollout(fleet("n1", jobs=(job("train", "n1"),)), SimulatedStrategy.WAIT).run()
    assert (result.seconds, result.left, result.ended) == (None, 1, "waiting for jobs that do not end")


def test_a_rollout_of_the_upgrader_waits_for_undeclared_jobs():
    result = rollout(fleet("n1", jobs=(job("silent", "n1", method="", end=HOUR),))).run()
    assert (result.upgraded, result.interruptions) == (1, 0)
    assert result.seconds is not None
    assert result.seconds > HOUR


@pytest.mark.parametrize("strategy", SimulatedStrategy)
def test_a_seed_decides_everything(strategy):
    made = make_fleet(FleetSpec(nodes=60, seed=5, largest=4, arriving=0.2))

    def run(seed: int) -> Result:
        return simulate_rollout(made, strategy, SimulationSettings(seed=seed))

    assert run(1) == run(1)
    assert strategy is SimulatedStrategy.WAIT or run(1) != run(2)


def test_a_budget_that_is_none_is_told():
    with pytest.raises(ConfigurationError, match="maxUnavailable"):
        rollout(fleet("n1"), budget="many").run()
