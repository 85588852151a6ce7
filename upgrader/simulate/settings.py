"""The settings of a simulation in addition to its fleet."""

from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct

from upgrader.core.model.prediction import Durations
from upgrader.core.model.strategy import StrategyFacts
from upgrader.simulate.durations import UPGRADE

DAY = 86400
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday."""


class SimulatedStrategy(StrEnum):
    """How a simulated fleet is upgraded: by the controller, or by a baseline that kills jobs or waits for them."""

    CONTROLLER = "upgrader"
    KILL = "kill"
    WAIT = "wait"


class SimulationSettings(Struct, frozen=True, kw_only=True):
    """Durations are in seconds."""

    rollout: StrategyFacts = StrategyFacts(max_unavailable="5%")
    durations: Durations | None = None  # durations that the controller has measured; None: its defaults
    seed: int = 0
    spread: bool = True  # whether durations are drawn; otherwise each is its median
    upgrade: tuple[int, int] = UPGRADE
    begin: datetime = BEGIN
    horizon: int = 14 * DAY  # the simulation ends at this time
    tolerated_failures: int = 0  # the rollout pauses after more failures, and is never resumed
    label_seconds: int = 1  # seconds in which a baseline writes one label; 0: none
    skew: int = 0  # offset of the clocks of nodes and jobs from the controller's clock
    refill: int = 0  # median length of jobs from a queue that is never empty; 0: no queue
    shuffle: bool = False  # whether actions in the same second run in random order
