"""Facts on an owner that the checkpoint request of its gang depends on, from the API object; pure and total."""

from collections.abc import Iterable, Mapping
from typing import Any

from upgrader.core.checkpoint_request.request_state import OwnerFacts
from upgrader.core.patches import text_at, value_at, values_at
from upgrader.core.workloads.desired_replicas import of_job
from upgrader.core.workloads.owner_kinds import OwnerKind, Switch
from upgrader.core.workloads.owner_objects import is_condition_true, read_count
from upgrader.core.workloads.suspend_patches import is_off, record_of

Object = Mapping[str, Any]


def owner_facts(row: OwnerKind, owner: Object | None, uid: str, asked: int) -> OwnerFacts:
    """Facts on an owner; another object of its name is not that owner.

    Args:
        row: its row in the table.
        owner: the object; None: it does not exist.
        uid: of the owner.
        asked: how many members the request was sent to, for owners whose fields do not state a number.
    """
    if owner is None or value_at(owner, ("metadata", "uid")) != uid:
        return OwnerFacts(present=False)
    record = record_of(value_at(owner, ("metadata", "annotations")) or {})
    off = is_off(row, owner)
    return OwnerFacts(
        suspended=off,
        stopped_by=record.request if record is not None else "",
        ordered=row.switch is Switch.COMMAND and record is not None and not off,
        unconfirmed=off and not _is_off_confirmed(row, owner),
        active=sum(_active_numbers(row, owner)),
        finished=_is_finished(row, owner),
        wanted=_wanted_pods(row, owner, asked),
        queued="" if off else _explain_queue(row, owner),
    )


def _is_off_confirmed(row: OwnerKind, owner: Object) -> bool:
    """Whether its controller confirms that it is off; the switch alone states only the request."""
    if row.proof and not is_condition_true(owner, row.proof):
        return False
    return not row.off or text_at(owner, row.state) in row.off


def _is_finished(row: OwnerKind, owner: Object) -> bool:
    by_condition = any(is_condition_true(owner, condition) for condition in row.conditions)
    return by_condition or (bool(row.state) and text_at(owner, row.state) in row.ended)


def _active_numbers(row: OwnerKind, owner: Object) -> Iterable[int]:
    return (read_count(value) for path in row.numbers for value in values_at(owner, path))


def _wanted_pods(row: OwnerKind, owner: Object, asked: int) -> int:
    """Pods that should run now."""
    if row.group == "batch":
        return of_job(owner.get("spec") or {}, read_count(value_at(owner, ("status", "succeeded"))))
    if row.group == "apps":
        return read_count(value_at(owner, row.field), 1)
    return asked


def _explain_queue(row: OwnerKind, owner: Object) -> str:
    if row.admitted and not is_condition_true(owner, row.admitted):
        reasons = [
            str(condition.get("message") or condition.get("reason") or "")
            for condition in values_at(owner, ("status", "conditions", "*"))
            if isinstance(condition, Mapping) and condition.get("type") == "QuotaReserved"
        ]
        return f"its queue has not admitted it{f' ({reasons[0]})' if reasons and reasons[0] else ''}"
    if row.waiting and text_at(owner, row.state) in row.waiting:
        return "its queue has not scheduled it"
    return ""
