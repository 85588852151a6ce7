"""Stopping and restarting owners, each as one merge patch that carries its own record; pure.

A patch is made from the owner as it was read, and is sent with that resourceVersion.
"""

from collections.abc import Mapping
from functools import partial, reduce
from typing import Annotated, Any

import msgspec

from upgrader.core import untrusted
from upgrader.core.naming import object_name
from upgrader.core.patches import at, changed, difference, put, word
from upgrader.core.workloads.owner_kinds import OwnerKind, Switch
from upgrader.core.workloads.placement import Placement, steered

# The same names as in api.names, which is above this layer; a test keeps them equal.
STOPPED = "gpu-upgrader.io/stopped"
FENCE = "gpu-upgrader.io/stop-given-up"

_RECORD = ("metadata", "annotations", STOPPED)

Object = Mapping[str, Any]
Name = Annotated[str, msgspec.Meta(max_length=untrusted.LONGEST_NAME)]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Why an owner is off: only an owner with this annotation is restarted by us."""

    plan: Name
    request: Name
    previous: bool | int | None = None  # what its switch held before; None: nothing


def is_off(row: OwnerKind, owner: Object) -> bool:
    """Whether an owner is switched off, whoever did it; `owner` is the object as the API server sends it."""
    if row.switch is Switch.COMMAND:
        return word(owner, row.state) in {*row.off, "Aborting"}
    value = at(owner, row.field)
    return value == row.off_value and isinstance(value, bool) is isinstance(row.off_value, bool)


def stop_patch(row: OwnerKind, owner: Object, plan: str, request: str) -> dict[str, Any]:
    """Switch off and record in one patch. Where another object switches, the patch is the record alone."""
    record = Record(plan=plan, request=request, previous=at(owner, row.field) if row.field else None)
    after = put(owner, _RECORD, msgspec.json.encode(record).decode())
    if row.field:
        after = put(after, row.field, row.off_value)
    return difference(owner, after)


def restart_patch(row: OwnerKind, owner: Object, placement: Placement | None) -> dict[str, Any]:
    """Switch on as before, drop the record, and steer.

    An owner that somebody else switched on meanwhile only loses the record; so does one that never had ours.

    Args:
        row: its row in the table.
        owner: the object as it was read.
        placement: where its pods may run; None: its templates stay as they are.
    """
    record = record_of(at(owner, ("metadata", "annotations")) or {})
    after = put(owner, _RECORD, None)
    if record is not None and row.field and is_off(row, owner):
        after = put(after, row.field, record.previous)
        if placement is not None:
            steer = partial(steered, placement=placement)
            after = reduce(lambda whole, path: changed(whole, path, steer), row.templates, after)
    return difference(owner, after)


def fence_patches(request: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two patches after which the owner is as it was, with a later resourceVersion."""
    return {"metadata": {"annotations": {FENCE: request}}}, {"metadata": {"annotations": {FENCE: None}}}


def command(row: OwnerKind, owner: Object, request: str, *, on: bool) -> dict[str, Any]:
    """The object that orders an owner of Volcano to go off or on; its name follows from the request.

    Volcano takes it away before it acts on it, and acts on none that finds the job so already: so it may be made again.
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


def record_of(annotations: Mapping[str, str]) -> Record | None:
    """Our record on an owner; None where there is none, or one that cannot be read (then it is not ours to undo)."""
    return untrusted.document(annotations.get(STOPPED), Record)
