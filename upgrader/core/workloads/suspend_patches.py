"""Patches that stop and restart owners, each one merge patch that contains its own record; pure.

A patch is built from the owner as it was read, and is sent with that resourceVersion.
"""

from collections.abc import Mapping
from functools import partial, reduce
from typing import Annotated, Any

import msgspec

from upgrader.core import untrusted
from upgrader.core.naming import object_name
from upgrader.core.patches import change_at, merge_patch, text_at, value_at, with_value
from upgrader.core.workloads.owner_kinds import OwnerKind, Switch
from upgrader.core.workloads.placement import Placement, steer_template

# The same names as in api.names, a layer above this one; a test keeps them equal.
STOPPED = "gpu-upgrader.io/stopped"
FENCE = "gpu-upgrader.io/stop-given-up"

_RECORD = ("metadata", "annotations", STOPPED)

Object = Mapping[str, Any]
Name = Annotated[str, msgspec.Meta(max_length=untrusted.LONGEST_NAME)]


class SuspendRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why an owner is off: only an owner with this annotation is restarted."""

    plan: Name
    request: Name
    previous: bool | int | None = None  # former value of its switch; None: no value


def is_off(row: OwnerKind, owner: Object) -> bool:
    """Whether an owner is switched off, by any user or program; `owner` is the object from the API server."""
    if row.switch is Switch.COMMAND:
        return text_at(owner, row.state) in {*row.off, "Aborting"}
    value = value_at(owner, row.field)
    return value == row.off_value and isinstance(value, bool) is isinstance(row.off_value, bool)


def stop_patch(row: OwnerKind, owner: Object, plan: str, request: str) -> dict[str, Any]:
    """Switch off and record in one patch. If another object orders the stop, the patch is the record alone."""
    record = SuspendRecord(plan=plan, request=request, previous=value_at(owner, row.field) if row.field else None)
    after = with_value(owner, _RECORD, msgspec.json.encode(record).decode())
    if row.field:
        after = with_value(after, row.field, row.off_value)
    return merge_patch(owner, after)


def restart_patch(row: OwnerKind, owner: Object, placement: Placement | None) -> dict[str, Any]:
    """Switch on as before, remove the record, and steer.

    If an owner was switched on by others meanwhile, or has no valid record, only the annotation is removed.

    Args:
        row: its row in the table.
        owner: the object as it was read.
        placement: where its pods may run; None: its templates stay as they are.
    """
    record = record_of(value_at(owner, ("metadata", "annotations")) or {})
    after = with_value(owner, _RECORD, None)
    if record is not None and row.field and is_off(row, owner):
        after = with_value(after, row.field, record.previous)
        if placement is not None:
            steer = partial(steer_template, placement=placement)
            after = reduce(lambda whole, path: change_at(whole, path, steer), row.templates, after)
    return merge_patch(owner, after)


def fence_patches(request: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two patches that leave the owner unchanged, with a later resourceVersion."""
    return {"metadata": {"annotations": {FENCE: request}}}, {"metadata": {"annotations": {FENCE: None}}}


def volcano_command(row: OwnerKind, owner: Object, request: str, *, on: bool) -> dict[str, Any]:
    """The object that orders an owner of Volcano to stop or to restart; its name follows from the request.

    Volcano deletes it before it acts on it, and ignores an order that the job already fulfils: so it may be sent again.
    """
    action = "ResumeJob" if on else "AbortJob"
    meta = owner["metadata"]
    target = {
        "apiVersion": owner.get("apiVersion") or row.api_version,
        "kind": row.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "metadata": {
            "name": object_name(f"{action} {meta['name']}", request, action),
            "namespace": meta["namespace"],
            "ownerReferences": [target],
        },
        "action": action,
        "target": target,
        "reason": "GpuUpgrade",
        "message": f"ordered by CheckpointRequest {request}",
    }


def record_of(annotations: Mapping[str, str]) -> SuspendRecord | None:
    """The record of a stop on an owner; None if there is none, or it is unreadable (then the stop is not undone)."""
    return untrusted.read_json(annotations.get(STOPPED), SuspendRecord)
