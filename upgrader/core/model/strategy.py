"""A plan's strategy and approval, as far as the forecast uses them. Times are aware (UTC), durations in seconds."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from upgrader.core.model.phases import OnFailure


class Weekday(StrEnum):
    """A day on which a window opens; the first is 0 in `Window.days`."""

    MONDAY = "Mon"
    TUESDAY = "Tue"
    WEDNESDAY = "Wed"
    THURSDAY = "Thu"
    FRIDAY = "Fri"
    SATURDAY = "Sat"
    SUNDAY = "Sun"


class TopologyBudget(Struct, frozen=True, kw_only=True):
    """Most unavailable GPUs among the nodes that share a value of one label (rack, NVLink domain, power)."""

    key: str
    max_unavailable: int | str


class Window(Struct, frozen=True, kw_only=True):
    """When batches may start: from `start` to `end` (HH:MM, the next day if it is not later) in `time_zone`."""

    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)  # days on which it opens, 0 is Monday
    start: str = "00:00"
    end: str = "00:00"
    time_zone: str = "UTC"


class StrategyFacts(Struct, frozen=True, kw_only=True):
    """Order and pace of a rollout, and the limits of its approval."""

    max_unavailable: int | str = "25%"
    topology: tuple[TopologyBudget, ...] = ()
    min_available_gpus: int = 0  # of the pool: a batch never leaves fewer in service
    canary: bool = False  # one idle node of each class before the others of the class
    soak_seconds: int = 0  # between the end of the canaries and the next other batch
    not_before: datetime | None = None  # canaries soak until then: only those of other classes start earlier
    proven: tuple[str, ...] = ()  # classes of nodes of which a canary was upgraded: they need no other canary
    completion_until: datetime | None = None  # jobs that end by themselves before this are waited for
    deadline: datetime | None = None  # no batch starts that would not end by then
    windows: tuple[Window, ...] = ()  # none: at any time
    lane_width: int = 0  # gangs of one storage lane that write checkpoints at the same time; 0: any number
    checkpoint_seconds: int = 1800  # longest one checkpoint may take if the job declares none
    checkpoint_method: str = ""  # the method of jobs that declare none, as the annotation; empty: they are waited for
    expendable: tuple[str, ...] = ()  # gangs that may be ended without an acknowledgement, named in the approval
    wait_for: tuple[str, ...] = ()  # replicated owners whose pods are waited for instead of evicted
    placement_unguaranteed: bool = False  # gangs may be restarted although the cluster cannot steer them
    on_failure: OnFailure = OnFailure.PAUSE  # after more failures than are tolerated
