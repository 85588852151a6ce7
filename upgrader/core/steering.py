"""Stopping and restarting a Job, each as one merge patch that carries its own record; pure.

Measured on Kubernetes 1.36.3: a Job that had started and was then suspended accepts a changed node affinity and
toleration in its template together with `suspend: false`, and its new pods carry both. Earlier versions refuse any
change of a template that has started, so there, and wherever a template need not change, patches leave it alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from upgrader.core.skew import minor_of

SINCE = (1, 36)
"""Kubernetes from which the template of a suspended Job that had started can be changed."""

# The same names as in api.names, which is above this layer; a test keeps them equal.
STOPPED = "gpu-upgrader.io/stopped"
REVISION = "gpu-upgrader.io/revision"
MAINTENANCE = "gpu-upgrader.io/maintenance"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Why a Job is suspended: only a Job with this annotation is restarted by us."""

    plan: str
    request: str
    previous: bool = False


def possible(api_server_version: str) -> bool:
    """Whether a restarted gang can be steered there; an unknown version cannot be relied on."""
    version = minor_of(api_server_version)
    return version is not None and version >= SINCE


def stop_patch(plan: str, request: str, *, suspended: bool) -> dict[str, Any]:
    """Suspend and record in one patch. `suspended`: what the Job was before."""
    record = msgspec.json.encode(Record(plan=plan, request=request, previous=suspended)).decode()
    return {"metadata": {"annotations": {STOPPED: record}}, "spec": {"suspend": True}}


def resume_patch(
    template_spec: Mapping[str, Any], left_behind: Sequence[str], closure: str, *, steer: bool = True
) -> dict[str, Any]:
    """Resume, drop the record, and steer: never to a revision left behind, and into the gang's own closure.

    What an earlier restart had put there is replaced. The user's own terms and tolerations stay as they are.

    Args:
        template_spec: the pod spec in the Job's template, as on the wire.
        left_behind: revisions that the gang must not meet; none takes our own expression away.
        closure: value of the taint that its nodes still carry; empty takes our own toleration away.
        steer: whether the template may be changed: false where the API server does not take it, and for a Job that
            is not suspended (somebody resumed it, and the record alone is dropped).
    """
    spec: dict[str, Any] = {"suspend": False}
    changes = _changes(template_spec, left_behind, closure) if steer else {}
    if changes:
        spec["template"] = {"spec": changes}
    return {"metadata": {"annotations": {STOPPED: None}}, "spec": spec}


def record_of(annotations: Mapping[str, str]) -> Record | None:
    """Our record on a Job; None where there is none, or one that cannot be read (then it is not ours to undo)."""
    text = annotations.get(STOPPED)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError:
        return None


def _changes(spec: Mapping[str, Any], left_behind: Sequence[str], closure: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    before = spec.get("tolerations") or []
    tolerations = _tolerations(before, closure)
    if tolerations != before:
        changes["tolerations"] = tolerations
    terms = _terms_of(spec)
    steered = _steered(terms, left_behind)
    if steered != terms:
        required = {"nodeSelectorTerms": steered} if steered else None
        changes["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    return changes


def _tolerations(before: Sequence[Mapping[str, Any]], closure: str) -> list[Mapping[str, Any]]:
    kept = [one for one in before if one.get("key") != MAINTENANCE]
    ours = {"key": MAINTENANCE, "operator": "Equal", "value": closure, "effect": "NoSchedule"}
    return [*kept, ours] if closure else kept


def _terms_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _steered(terms: Sequence[Mapping[str, Any]], left_behind: Sequence[str]) -> list[Mapping[str, Any]]:
    """Terms are ORed, so ours goes into each of them; where the user has none it is the only one."""
    kept = [bare for bare in map(_without_ours, terms) if bare is not None]
    if not left_behind:
        return kept
    ours = {"key": REVISION, "operator": "NotIn", "values": sorted(set(left_behind))}
    return [_with(term, ours) for term in kept] or [{"matchExpressions": [ours]}]


def _without_ours(term: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A term as the user wrote it; None where there was nothing in it but ours."""
    expressions = term.get("matchExpressions") or []
    kept = [one for one in expressions if (one.get("key"), one.get("operator")) != (REVISION, "NotIn")]
    if len(kept) == len(expressions):
        return term
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    if kept:
        return {**rest, "matchExpressions": kept}
    return rest or None


def _with(term: Mapping[str, Any], ours: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(term.values()):
        return term  # an empty term matches no node at all: with ours in it, it would match nearly every one
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), ours]}
