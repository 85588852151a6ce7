"""What a forecast predicts in numbers. Times are aware (UTC), durations are in seconds, losses in GPU-hours."""

from datetime import datetime

from msgspec import Struct


class Durations(Struct, frozen=True, kw_only=True):
    """How long things take, median and 95th percentile: measured on this stack where there is history (`pace.learned`).

    The defaults are assumptions, not measurements: swapping a precompiled driver takes minutes, a checkpoint of a large
    model 2 minutes (both from the literature that the design's reference names, D4 and D5), and the 95th percentile is
    where the phases' own deadlines (5 to 20 minutes) begin to matter.
    """

    prepare: tuple[int, int] = (60, 180)  # images and artifacts fetched while jobs still run: time, no loss
    upgrade: tuple[int, int] = (240, 600)  # from the close of a node until it is given back
    checkpoint: tuple[int, int] = (120, 600)
    restart: tuple[int, int] = (120, 600)
    measured: int = 0  # upgrades that this comes from; 0: defaults


class Interruption(Struct, frozen=True, kw_only=True):
    """A gang that is stopped: when it is asked, for how long it does not train, what that costs and why it must be."""

    gang: str
    gpus: int
    asked_at: datetime
    seconds: int
    lost_gpu_hours: float
    because: str


class Completion(Struct, frozen=True, kw_only=True):
    """Nodes whose jobs all end by themselves in time: taken at that moment, nobody is asked."""

    nodes: tuple[str, ...]
    gangs: tuple[str, ...]
    at: datetime


class Prediction(Struct, frozen=True, kw_only=True):
    """What the rollout costs and when it is over; the lower bound is what no order of upgrades can go below."""

    finish_p50: datetime | None = None  # None: something is blocked, so nobody can say
    finish_p95: datetime | None = None
    lost_gpu_hours: float = 0.0
    lower_bound_gpu_hours: float = 0.0
    interruptions: tuple[Interruption, ...] = ()
    durations: Durations = Durations()

    @property
    def gap(self) -> float:
        """Lost GPU-hours over the lower bound; 1 is best."""
        return self.lost_gpu_hours / self.lower_bound_gpu_hours if self.lower_bound_gpu_hours else 1.0
