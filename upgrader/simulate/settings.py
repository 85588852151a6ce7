"""What a simulation is given beside its fleet."""

from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct

from upgrader.core.model.prediction import Durations
from upgrader.core.model.strategy import StrategyFacts
from upgrader.simulate.durations import UPGRADE

DAY = 86400
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday."""


class Strategy(StrEnum):
    """Who upgrades."""

    OURS = "ours"
    KILL = "kill"
    WAIT = "wait"


class Settings(Struct, frozen=True, kw_only=True):
    """Durations are in seconds."""

    rollout: StrategyFacts = StrategyFacts(max_unavailable="5%")
    durations: Durations | None = None  # what the controller has measured; None: its defaults
    seed: int = 0
    spread: bool = True  # whether durations are drawn; otherwise each is its median
    upgrade: tuple[int, int] = UPGRADE
    begin: datetime = BEGIN
    horizon: int = 14 * DAY  # what has not ended by then is given up
    tolerated_failures: int = 0  # a rollout of ours pauses when there are more, and nobody resumes it here
    label_seconds: int = 1  # that the others take to write one label of a node's state; 0: none
    skew: int = 0  # how far the clocks of nodes and jobs are ahead of the controller's
    refill: int = 0  # median length of jobs from a queue that never runs dry; 0: there is none
    shuffle: bool = False  # whether what falls into the same second comes in any order
