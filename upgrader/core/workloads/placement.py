"""Where a restarted gang may run, written into pod templates; pure.

Measured on Kubernetes 1.36.3: a Job that had started and was then suspended accepts a changed node affinity and
toleration in its template together with `suspend: false`, and its new pods carry both. Earlier versions refuse any
change of a template that has started, so there, and wherever a template need not change, it is left alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.skew import minor_of
from upgrader.core.patches import at, merged
from upgrader.core.workloads.owner_kinds import OwnerKind

# The same names as in api.names, which is above this layer; a test keeps them equal.
REVISION = "gpu-upgrader.io/revision"
MAINTENANCE = "gpu-upgrader.io/maintenance"

_OURS = ((REVISION, "NotIn"), (REVISION, "Exists"))  # no set: what is looked for there need not be a text

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a restarted gang may run: nodes of one revision, so that it never meets two drivers."""

    left_behind: tuple[str, ...] = ()  # revisions that it must not meet
    settled: bool = False  # only nodes that carry a revision: none that a node upgrade has taken it from
    group: str = ""  # value of the taint that its nodes still carry; empty: it keeps off every node in a node upgrade


def possible(row: OwnerKind, api_server_version: str) -> bool:
    """Whether the templates of such an owner can be changed there; an unknown version cannot be relied on."""
    version = minor_of(api_server_version)
    return bool(row.templates) and version is not None and version >= row.steered_since


def refuge(nodes: Iterable[NodeFacts], revisions: Sequence[str]) -> str:
    """The revision whose nodes in service offer most whole GPUs, then most of all; the first of equals, else empty.

    For a gang that cannot wait for its own nodes any longer: it must not meet two drivers, nor a node in an upgrade.
    """
    free = [node for node in nodes if node.ready and not node.taken and not node.unschedulable]
    of = {one: [node for node in free if node.revision == one] for one in revisions}
    offered = {
        one: (sum(node.gpus_whole for node in nodes), sum(node.gpus_allocatable for node in nodes))
        for one, nodes in of.items()
    }
    best = max(offered, key=lambda one: offered[one], default="")
    return best if any(offered.get(best, ())) else ""


def steered(template: Mapping[str, Any], placement: Placement) -> Mapping[str, Any]:
    """A pod template whose pods run only there; an empty placement takes our own expression and toleration away.

    What an earlier restart had put there is replaced. The user's own terms and tolerations stay as they are. A template
    without the form of one stays as it is: no pod can be made from it, and its owner is switched on all the same.
    """
    if not _readable(template):
        return template
    changes = _changes(template.get("spec") or {}, placement)
    whole: dict[str, Any] = merged(template, {"spec": changes}) if changes else dict(template)
    return whole


def _readable(template: object) -> bool:
    """Whether a template has the form that Kubernetes gives it, as far as it is read here."""
    if not isinstance(template, Mapping):
        return False
    inner = [("spec", "affinity", "nodeAffinity", _REQUIRED)[:length] for length in range(1, 5)]
    if any(not isinstance(at(template, path), Mapping | None) for path in inner):
        return False
    terms = at(template, (*inner[-1], "nodeSelectorTerms"))
    if not _objects(terms) or not _objects(at(template, ("spec", "tolerations"))):
        return False
    return all(_objects(one.get("matchExpressions")) for one in terms or ())


def _objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, Mapping) for one in value))


def _changes(spec: Mapping[str, Any], placement: Placement) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    before = spec.get("tolerations") or []
    tolerations = _tolerations(before, placement.group)
    if tolerations != before:
        changes["tolerations"] = tolerations
    terms = _terms_of(spec)
    steered = _steered(terms, placement)
    if steered != terms:
        required = {"nodeSelectorTerms": steered} if steered else None
        changes["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    return changes


def _tolerations(before: Sequence[Mapping[str, Any]], group: str) -> list[Mapping[str, Any]]:
    kept = [one for one in before if not _is_ours(one)]
    ours = {"key": MAINTENANCE, "operator": "Equal", "value": group, "effect": "NoSchedule"}
    return [*kept, ours] if group else kept


def _is_ours(toleration: Mapping[str, Any]) -> bool:
    """Of exactly the shape in which a restart writes it; a user may tolerate our taint in any other."""
    shape = (toleration.get("key"), toleration.get("operator"), toleration.get("effect"))
    return shape == (MAINTENANCE, "Equal", "NoSchedule") and _GROUP.fullmatch(toleration.get("value") or "") is not None


_GROUP = re.compile(r"[cn]-[0-9a-z]+")


def _terms_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _steered(terms: Sequence[Mapping[str, Any]], placement: Placement) -> list[Mapping[str, Any]]:
    """Terms are ORed, so ours goes into each of them; where the user has none it is the only one."""
    kept = [bare for bare in map(_without_ours, terms) if bare is not None]
    ours: list[dict[str, Any]] = []
    if placement.left_behind:
        ours.append({"key": REVISION, "operator": "NotIn", "values": sorted(set(placement.left_behind))})
    if placement.settled:
        ours.append({"key": REVISION, "operator": "Exists"})
    if not ours:
        return kept
    return [_with(term, ours) for term in kept] or [{"matchExpressions": ours}]


def _without_ours(term: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A term as the user wrote it; None where there was nothing in it but ours."""
    expressions = term.get("matchExpressions") or []
    kept = [one for one in expressions if (one.get("key"), one.get("operator")) not in _OURS]
    if len(kept) == len(expressions):
        return term
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    if kept:
        return {**rest, "matchExpressions": kept}
    return rest or None


def _with(term: Mapping[str, Any], ours: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not any(term.values()):
        return term  # an empty term matches no node at all: with ours in it, it would match nearly every one
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *ours]}
