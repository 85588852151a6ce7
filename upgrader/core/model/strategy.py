"""A plan's strategy and approval, as far as the forecast uses them. Times are aware (UTC), durations in seconds.

Topology budgets and windows are also fields of the strategy in the UpgradePlan.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from upgrader.core.fields import Resource, Text, TimeOfDay, TimeZone, field_doc
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.validation import ValidationLevel


class Weekday(StrEnum):
    """A day on which a window opens, in the order of `date.weekday()`."""

    MONDAY = "Mon"
    TUESDAY = "Tue"
    WEDNESDAY = "Wed"
    THURSDAY = "Thu"
    FRIDAY = "Fri"
    SATURDAY = "Sat"
    SUNDAY = "Sun"


class TopologyBudget(Resource, frozen=True, kw_only=True):
    """Most unavailable GPUs among the nodes that share a value of one label (rack, NVLink domain, power)."""

    key: Annotated[
        Text,
        field_doc(
            "Key of a node label. Nodes with the same value form one domain, for example a rack, a zone "
            "or an NVLink domain."
        ),
    ]
    max_unavailable: Annotated[
        int | str,
        Meta(
            description="Maximum number of GPUs that may be out of service at the same time in each domain: a "
            "number, or a percentage of the GPUs of the domain, rounded down.",
            extra_json_schema={
                "x-kubernetes-int-or-string": True,
                "minimum": 1,
                "pattern": "^(100|[1-9][0-9]?)%$",
            },
        ),
    ]


class Window(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """When batches may start. Defaults are written out, since plans and plan files outlive a release."""

    days: Annotated[
        tuple[Weekday, ...],
        Meta(description="Days on which the window opens. If empty, it opens every day.", max_length=7),
    ] = ()
    start: Annotated[TimeOfDay, field_doc("Time of day at which the window opens, as HH:MM. Defaults to 00:00.")] = (
        "00:00"
    )
    end: Annotated[
        TimeOfDay,
        field_doc(
            "Time of day at which the window closes, as HH:MM. If it is not later than `start`, the "
            "window closes at this time on the next day. Defaults to 00:00."
        ),
    ] = "00:00"
    time_zone: Annotated[
        TimeZone,
        field_doc("IANA name of the time zone of `start` and `end`, for example Europe/Berlin. Defaults to UTC."),
    ] = "UTC"


class StrategyFacts(Struct, frozen=True, kw_only=True):
    """Order and pace of a rollout, and the limits of its approval.

    Not the `Strategy` of the API: it joins the plan's strategy, checkpoint defaults, approval and progress, and has
    times in place of their durations.
    """

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
    validation: ValidationLevel = ValidationLevel.DEVICES  # of nodes before their release
    canary_validation: ValidationLevel | None = None  # None: as validation
    on_failure: OnFailure = OnFailure.PAUSE  # after more failures than are tolerated

    @property
    def validation_levels(self) -> dict[str, ValidationLevel]:
        """The levels of validation that are requested, by the field of the plan."""
        levels = {"spec.strategy.validation": self.validation}
        if self.canary and self.canary_validation is not None:
            levels["spec.strategy.canary.validation"] = self.canary_validation
        return levels
