"""Predictions of a forecast, in numbers. Times are aware (UTC), durations are in seconds, losses in GPU-hours."""

from datetime import datetime

from msgspec import Struct


class Durations(Struct, frozen=True, kw_only=True):
    """Durations of phases, median and 95th percentile: measured on this stack if it has a history (`learned`).

    The defaults are assumptions, not measurements: the change of a precompiled driver takes minutes, a checkpoint of a
    large model 2 minutes (both from the literature that the design's reference names, D4 and D5), and the 95th
    percentile is where the phases' own deadlines (5 to 20 minutes) become relevant.
    """

    prepare: tuple[int, int] = (60, 180)  # fetch of images and artifacts while jobs still run: time, no loss
    upgrade: tuple[int, int] = (240, 600)  # from the taint of a node until its release
    checkpoint: tuple[int, int] = (120, 600)
    restart: tuple[int, int] = (120, 600)
    measured: int = 0  # number of upgrades that were measured; 0: defaults


class Interruption(Struct, frozen=True, kw_only=True):
    """A gang that is stopped: when it gets its request, how long it does not train, the loss, and the reason."""

    gang: str
    gpus: int
    asked_at: datetime
    seconds: int
    lost_gpu_hours: float
    because: str


class Completion(Struct, frozen=True, kw_only=True):
    """Nodes whose jobs all end in time: upgraded then, without a request."""

    nodes: tuple[str, ...]
    gangs: tuple[str, ...]
    at: datetime


class Prediction(Struct, frozen=True, kw_only=True):
    """The cost and the end of the rollout; the lower bound is that of all orders of upgrades."""

    finish_p50: datetime | None = None  # None: nodes are blocked, so that it is unknown
    finish_p95: datetime | None = None
    lost_gpu_hours: float = 0.0
    lower_bound_gpu_hours: float = 0.0
    interruptions: tuple[Interruption, ...] = ()
    durations: Durations = Durations()

    @property
    def gap(self) -> float:
        """Lost GPU-hours over the lower bound; 1 is best."""
        return self.lost_gpu_hours / self.lower_bound_gpu_hours if self.lower_bound_gpu_hours else 1.0
