"""An owner as the checkpoint request of its gang sees it, from the object that the API server sends; pure and total."""

from collections.abc import Iterable, Mapping
from typing import Any

from upgrader.core.checkpoint_request.request_state import OwnerFacts
from upgrader.core.patches import at, every, word
from upgrader.core.workloads.desired_replicas import of_job
from upgrader.core.workloads.owner_kinds import OwnerKind, Switch
from upgrader.core.workloads.owner_objects import holds, number
from upgrader.core.workloads.suspend_patches import is_off, record_of

Object = Mapping[str, Any]


def owner_facts(row: OwnerKind, owner: Object | None, uid: str, asked: int) -> OwnerFacts:
    """What can be told of an owner; another object of its name is none.

    Args:
        row: its row in the table.
        owner: the object; None: it is not there.
        uid: of the owner that is meant.
        asked: how many members were asked, for owners whose fields do not say how many there should be.
    """
    if owner is None or at(owner, ("metadata", "uid")) != uid:
        return OwnerFacts(present=False)
    record = record_of(at(owner, ("metadata", "annotations")) or {})
    off = is_off(row, owner)
    return OwnerFacts(
        suspended=off,
        stopped_by=record.request if record is not None else "",
        ordered=row.switch is Switch.COMMAND and record is not None and not off,
        unconfirmed=off and not _confirmed(row, owner),
        active=sum(_numbers(row, owner)),
        finished=_finished(row, owner),
        wanted=_wanted(row, owner, asked),
        queued="" if off else _queued(row, owner),
    )


def _confirmed(row: OwnerKind, owner: Object) -> bool:
    """Whether its controller says that it is off; a field alone says only that it was told to."""
    if row.proof and not holds(owner, row.proof):
        return False
    return not row.off or word(owner, row.state) in row.off


def _finished(row: OwnerKind, owner: Object) -> bool:
    return any(holds(owner, one) for one in row.conditions) or (bool(row.state) and word(owner, row.state) in row.ended)


def _numbers(row: OwnerKind, owner: Object) -> Iterable[int]:
    return (number(one) for path in row.numbers for one in every(owner, path))


def _wanted(row: OwnerKind, owner: Object, asked: int) -> int:
    """Pods that should run now."""
    if row.group == "batch":
        return of_job(owner.get("spec") or {}, number(at(owner, ("status", "succeeded"))))
    if row.group == "apps":
        return number(at(owner, row.field), 1)
    return asked


def _queued(row: OwnerKind, owner: Object) -> str:
    if row.admitted and not holds(owner, row.admitted):
        said = [
            str(one.get("message") or one.get("reason") or "")
            for one in every(owner, ("status", "conditions", "*"))
            if isinstance(one, Mapping) and one.get("type") == "QuotaReserved"
        ]
        return f"its queue has not admitted it{f' ({said[0]})' if said and said[0] else ''}"
    if row.waiting and word(owner, row.state) in row.waiting:
        return "its queue has not scheduled it"
    return ""
