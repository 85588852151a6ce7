"""Durations that a controller measures in a rollout, for the forecast of the next rollout."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from upgrader.core.forecast.duration_model import measured_durations
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.model.prediction import Durations
from upgrader.simulate.controller.rollout import Controller
from upgrader.simulate.fleets.fleet import Fleet
from upgrader.simulate.run import Simulation
from upgrader.simulate.settings import SimulatedStrategy, SimulationSettings

_N, _R = NodePhase, RequestPhase
Phase = TypeVar("Phase", NodePhase, RequestPhase)


def measure_earlier_rollout(fleet: Fleet, settings: SimulationSettings) -> Durations:
    """Durations of one whole rollout of the same fleet, with these settings and seed.

    Raises:
        ConfigurationError: the budget is neither a number of GPUs nor a percentage.
    """
    simulation = Simulation(fleet, SimulatedStrategy.CONTROLLER, settings)
    simulation.run()
    return durations_of_rollout(simulation.controller) if simulation.controller is not None else Durations()


def durations_of_rollout(rollout: Controller) -> Durations:
    """Durations of all upgrades and requests of a rollout that passed the phases."""
    upgrades = [upgrade.began for upgrade in rollout.upgrades if not upgrade.reverting]
    requests = [request.began | {_R.REQUESTED: request.asked_at} for request in rollout.requests]
    return measured_durations(
        list(_seconds_between(upgrades, _N.TAINTING, _N.RELEASING)),
        preparations=list(_seconds_between(upgrades, _N.PREPARING, _N.PREPARED)),
        checkpoints=list(_seconds_between(requests, _R.REQUESTED, _R.PARKED)),
        restarts=list(_seconds_between(requests, _R.RESTARTING, _R.RESTORED)),
    )


def _seconds_between(walks: Iterable[dict[Phase, datetime]], first: Phase, last: Phase) -> Iterable[float]:
    return ((walk[last] - walk[first]).total_seconds() for walk in walks if first in walk and last in walk)
