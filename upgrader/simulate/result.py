"""The result of a simulated rollout."""

from msgspec import Struct

HOUR = 3600


class InitialForecast(Struct, frozen=True, kw_only=True):
    """The forecast before the start; times in seconds from the begin."""

    batches: int
    interruptions: int
    lost_gpu_hours: float
    lower_bound_gpu_hours: float
    finish_p50: int | None = None  # None: something is blocked, so there is no forecast
    finish_p95: int | None = None


class Result(Struct, frozen=True, kw_only=True):
    """One strategy on one fleet. All values are simulated. GPU-hours are those of GPUs without work."""

    fleet: str
    strategy: str
    seed: int
    nodes: int
    gpus: int
    jobs: int  # that ran at the begin
    upgraded: int  # nodes on the new revision
    seconds: int | None  # until the last node is upgraded and the last gang trains; None: this did not happen
    ended: str  # how it ended, as a sentence
    interruptions: int
    gangs_interrupted: int
    most_interruptions: int  # of one gang
    lost_gpu_hours: float  # the sum of the following
    upgrades_gpu_hours: float  # nodes out of service
    gangs_gpu_hours: float  # gangs that did not train beyond that: checkpoint, parked, waiting, restart
    thrown_away_gpu_hours: float  # work after the checkpoint from which a gang resumed
    idle_gpu_hours: float  # free GPUs on cordoned nodes
    lower_bound_gpu_hours: float
    left: int = 0  # nodes still on the old revision
    batches: int = 0
    predicted: InitialForecast | None = None

    @property
    def over_bound(self) -> float:
        """Lost GPU-hours over the lower bound."""
        return self.lost_gpu_hours / self.lower_bound_gpu_hours if self.lower_bound_gpu_hours else 1.0
