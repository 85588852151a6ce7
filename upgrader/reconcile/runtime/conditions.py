"""Conditions of the operator's kinds, by Kubernetes' API conventions: unchanged conditions are not rewritten."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from upgrader.api.kubernetes import Condition
from upgrader.core import timing


class ConditionContent(NamedTuple):
    """The content of a condition."""

    type: str
    status: str
    reason: str
    message: str


def next_condition(present: Sequence[Condition], told: ConditionContent, now: datetime) -> Condition:
    """The condition to write: its transition time changes only with its status."""
    before = next((condition for condition in present if condition.type == told.type), None)
    if before is not None and (before.status, before.reason, before.message) == told[1:]:
        return before
    moved = timing.format_time(now)
    if before is not None and before.status == told.status and before.last_transition_time is not None:
        moved = before.last_transition_time
    return Condition(
        type=told.type, status=told.status, reason=told.reason, message=told.message, last_transition_time=moved
    )
