"""Conditions of our kinds, as in Kubernetes' API conventions: written anew only where they say something new."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from upgrader.api.kubernetes import Condition
from upgrader.core import timing


class Told(NamedTuple):
    """What a condition says."""

    type: str
    status: str
    reason: str
    message: str


def condition(present: Sequence[Condition], told: Told, now: datetime) -> Condition:
    """The condition as it should be, after the present ones: its transition time moves only when its status does."""
    before = next((one for one in present if one.type == told.type), None)
    if before is not None and (before.status, before.reason, before.message) == told[1:]:
        return before
    moved = timing.show(now)
    if before is not None and before.status == told.status and before.last_transition_time is not None:
        moved = before.last_transition_time
    return Condition(
        type=told.type, status=told.status, reason=told.reason, message=told.message, last_transition_time=moved
    )
