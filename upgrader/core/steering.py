"""Stopping and restarting a Job, each as one merge patch that carries its own record; pure.

Measured on Kubernetes 1.36.3: a Job that had started and was then suspended accepts a changed node affinity and toleration
in its template together with `suspend: false`, and its new pods carry both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

STOPPED = "gpu-upgrader.io/stopped"
REVISION = "gpu-upgrader.io/revision"
MAINTENANCE = "gpu-upgrader.io/maintenance"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Why a Job is suspended: only a Job with this annotation is restarted by us."""

    plan: str
    request: str
    previous: bool = False


def stop_patch(plan: str, request: str, *, suspended: bool) -> dict[str, Any]:
    """Suspend and record in one patch."""
    record = msgspec.json.encode(Record(plan=plan, request=request, previous=suspended)).decode()
    return {"metadata": {"annotations": {STOPPED: record}}, "spec": {"suspend": True}}


def resume_patch(template_spec: Mapping[str, Any], left_behind: Sequence[str], closure: str) -> dict[str, Any]:
    """Resume, drop the record, and steer: never to a revision left behind, and into the gang's own closure."""
    spec: dict[str, Any] = {"tolerations": _tolerations(template_spec, closure)}
    if left_behind:
        spec["affinity"] = _affinity(template_spec, left_behind)
    return {
        "metadata": {"annotations": {STOPPED: None}},
        "spec": {"suspend": False, "template": {"spec": spec}},
    }


def record_of(annotations: Mapping[str, str]) -> Record | None:
    """Our record on a Job; None where there is none, or one that cannot be read (then it is not ours to undo)."""
    text = annotations.get(STOPPED)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError:
        return None


def _tolerations(spec: Mapping[str, Any], closure: str) -> list[Any]:
    kept = [one for one in spec.get("tolerations") or [] if one.get("key") != MAINTENANCE]
    ours = {"key": MAINTENANCE, "operator": "Equal", "value": closure, "effect": "NoSchedule"}
    return [*kept, ours] if closure else kept


def _affinity(spec: Mapping[str, Any], left_behind: Sequence[str]) -> dict[str, Any]:
    """Terms are ORed, so ours goes into each of them; where there are none it is the only one."""
    required = (
        ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    ) or {}
    ours = {"key": REVISION, "operator": "NotIn", "values": sorted(left_behind)}
    terms = [_steered(term, ours) for term in required.get("nodeSelectorTerms") or [{}]]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _steered(term: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    kept = [one for one in term.get("matchExpressions") or [] if one.get("key") != REVISION]
    return {**term, "matchExpressions": [*kept, ours]}
