"""Placement of restarted gangs, written into pod templates; pure.

Measured on Kubernetes 1.36.3: a Job that had started and was then suspended accepts a changed node affinity and
toleration in its template together with `suspend: false`, and its new pods carry both. Earlier versions refuse any
change of a template that has started; there, and if a template need not change, it is not written.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from upgrader.core.fields import Resource, field_doc
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.skew import minor_of
from upgrader.core.patches import apply_merge_patch, value_at
from upgrader.core.workloads.owner_kinds import OwnerKind

# The same names as in api.names, a layer above this one; a test keeps them equal.
REVISION = "gpu-upgrader.io/revision"
MAINTENANCE = "gpu-upgrader.io/maintenance"

# No set: a value that is searched for in it need not be hashable.
_STEERING = ((REVISION, "NotIn"), (REVISION, "Exists"))

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Placement(Resource, frozen=True, kw_only=True):
    """The nodes on which a restarted gang may run: of one revision, so that it never runs on two drivers."""

    left_behind: Annotated[
        tuple[str, ...], field_doc("Revisions of nodes on which the pods of the gang must not run.")
    ] = ()
    settled: Annotated[
        bool, field_doc("Whether the pods run only on nodes with the label gpu-upgrader.io/revision.")
    ] = False
    group: Annotated[
        str, field_doc("Upgrade group whose maintenance taint the pods tolerate. Empty means no group.")
    ] = ""
    # Only for owners whose templates cannot be changed, see reconcile/checkpoint_request/placement_hint.py.
    pod_labels: Annotated[
        dict[str, str],
        field_doc("Labels that all pods of the gang have. If empty, the pods are identified by their owner."),
    ] = msgspec.field(default_factory=dict)


def is_steerable(row: OwnerKind, api_server_version: str) -> bool:
    """Whether the templates of such an owner can be changed in a version of Kubernetes; False if it is unknown."""
    version = minor_of(api_server_version)
    return bool(row.templates) and version is not None and version >= row.steered_since


def refuge_revision(nodes: Iterable[NodeFacts], revisions: Sequence[str]) -> str:
    """The revision whose nodes in service offer most whole GPUs, then most GPUs; the first of equals, else empty.

    For a gang that no longer waits for its own nodes: it must not run on two drivers, nor on a node in an upgrade.
    """
    free = [node for node in nodes if node.ready and not node.taken and not node.unschedulable]
    of = {revision: [node for node in free if node.revision == revision] for revision in revisions}
    offered = {
        revision: (sum(node.gpus_whole for node in nodes), sum(node.gpus_allocatable for node in nodes))
        for revision, nodes in of.items()
    }
    best = max(offered, key=lambda revision: offered[revision], default="")
    return best if any(offered.get(best, ())) else ""


def steer_template(template: Mapping[str, Any], placement: Placement) -> Mapping[str, Any]:
    """A pod template with a placement; an empty placement removes the operator's expressions and toleration.

    Those of an earlier restart are replaced. The user's terms and tolerations stay. A malformed template stays as it
    is: no pod can be created from it, and its owner is still switched on.
    """
    if not _is_readable(template):
        return template
    changes = _placement_changes(template.get("spec") or {}, placement)
    whole: dict[str, Any] = apply_merge_patch(template, {"spec": changes}) if changes else dict(template)
    return whole


def _is_readable(template: object) -> bool:
    """Whether a template has the form that Kubernetes defines, as far as it is read here."""
    if not isinstance(template, Mapping):
        return False
    inner = [("spec", "affinity", "nodeAffinity", _REQUIRED)[:length] for length in range(1, 5)]
    if any(not isinstance(value_at(template, path), Mapping | None) for path in inner):
        return False
    terms = value_at(template, (*inner[-1], "nodeSelectorTerms"))
    if not _is_object_list(terms) or not _is_object_list(value_at(template, ("spec", "tolerations"))):
        return False
    return all(_is_object_list(term.get("matchExpressions")) for term in terms or ())


def _is_object_list(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value))


def _placement_changes(spec: Mapping[str, Any], placement: Placement) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    before = spec.get("tolerations") or []
    tolerations = _steered_tolerations(before, placement.group)
    if tolerations != before:
        changes["tolerations"] = tolerations
    terms = _terms_of(spec)
    changed_terms = _steered_terms(terms, placement)
    if changed_terms != terms:
        required = {"nodeSelectorTerms": changed_terms} if changed_terms else None
        changes["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    return changes


def _steered_tolerations(before: Sequence[Mapping[str, Any]], group: str) -> list[Mapping[str, Any]]:
    kept = [toleration for toleration in before if not _is_steering_toleration(toleration)]
    added = {"key": MAINTENANCE, "operator": "Equal", "value": group, "effect": "NoSchedule"}
    return [*kept, added] if group else kept


def _is_steering_toleration(toleration: Mapping[str, Any]) -> bool:
    """Whether it has exactly the form that a restart writes; a user may tolerate the taint in any other form."""
    shape = (toleration.get("key"), toleration.get("operator"), toleration.get("effect"))
    return shape == (MAINTENANCE, "Equal", "NoSchedule") and _GROUP.fullmatch(toleration.get("value") or "") is not None


_GROUP = re.compile(r"[cn]-[0-9a-z]+")


def _terms_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _steered_terms(terms: Sequence[Mapping[str, Any]], placement: Placement) -> list[Mapping[str, Any]]:
    """Terms are ORed, so that the expressions are added to each; if the user has no terms, they are the only one."""
    kept = [bare for bare in map(_user_term, terms) if bare is not None]
    added: list[dict[str, Any]] = []
    if placement.left_behind:
        added.append({"key": REVISION, "operator": "NotIn", "values": sorted(set(placement.left_behind))})
    if placement.settled:
        added.append({"key": REVISION, "operator": "Exists"})
    if not added:
        return kept
    return [_add_expressions(term, added) for term in kept] or [{"matchExpressions": added}]


def _user_term(term: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A term as the user wrote it; None if it contains only expressions of a restart."""
    expressions = term.get("matchExpressions") or []
    kept = [
        expression for expression in expressions if (expression.get("key"), expression.get("operator")) not in _STEERING
    ]
    if len(kept) == len(expressions):
        return term
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    if kept:
        return {**rest, "matchExpressions": kept}
    return rest or None


def _add_expressions(term: Mapping[str, Any], added: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not any(term.values()):
        return term  # an empty term matches no node: with an expression, it would match nearly all
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *added]}
