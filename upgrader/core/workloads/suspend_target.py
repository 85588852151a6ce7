"""The owner that stops and restarts a gang, or why there is none: in doubt the gang is not stopped.

Kueue's Workload first, if it is admitted; else the topmost owner with a switch, never a child of one. An owner that
belongs to an object of an unknown kind is not stopped either, since that object's controller may undo the stop.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from upgrader.core.workloads.gang_rules import PodMetadata
from upgrader.core.workloads.owner_chain import Chains, Link
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.core.workloads.owner_objects import (
    LABEL_QUEUE,
    WORKLOAD,
    Work,
    describe_owner,
    is_admitted,
    managed_by,
    sort_of,
)

NO_CONTROLLER = "Its pods have no controller that would create them again."


class PodSwitch(Struct, frozen=True, kw_only=True):
    """The switch of a pod: `work` is switched off; `uid` and `name` identify it, also if it cannot be switched."""

    uid: str = ""
    name: str = ""
    work: Work | None = None  # the owner that is switched off
    counted: Work | None = None  # the owner that states the number of pods
    problem: str = ""  # why it cannot be stopped and restarted


def switch_of(pod: PodMetadata, chains: Chains) -> PodSwitch:
    """The switch that stops and restarts one pod."""
    links = chains.owners_above(pod.controller)
    top = next((link.work for link in reversed(links) if link.work is not None and link.work.row is not None), None)
    workload = chains.workload([*(link.owner.uid for link in reversed(links)), pod.uid])
    if workload is not None:
        name, problem = (
            describe_owner(workload.owner),
            _admission_problem(workload) or _plain_pod_problem(pod, workload),
        )
        return PodSwitch(uid=workload.owner.uid, name=name, work=workload, counted=top, problem=problem)
    if top is not None:
        problem = _queue_problem(links) or _unknown_owner_problem(top, links) or _manager_problem(top)
        return PodSwitch(uid=top.owner.uid, name=describe_owner(top.owner), work=top, counted=top, problem=problem)
    if not links:
        return PodSwitch(problem=NO_CONTROLLER)
    owner = links[-1].owner
    problem = (
        f"Its {describe_owner(owner)} was deleted or replaced by another object of this name."
        if sort_of(owner) in _SORTS
        else f"The operator cannot stop and restart a {owner.kind}, and its pods belong to {describe_owner(owner)}."
    )
    return PodSwitch(uid=owner.uid, name=describe_owner(owner), problem=problem)


def one_switch(name: str, kind: str, switches: Sequence[PodSwitch]) -> PodSwitch:
    """The one switch of all pods of a gang (its `name` without namespace, and `kind`)."""
    by_uid = {switch.uid: switch for switch in switches}
    if len(by_uid) == 1:
        return switches[0]
    owners = sorted(switch.name for switch in by_uid.values())
    listed = ", ".join(owner or "no controller" for owner in owners)
    what = name if kind != "pod-group" else f"Pod group {name}"
    return PodSwitch(problem=f"{what} has pods of several owners ({listed}), which cannot be suspended together.")


def shared_owners(groups: Iterable[Sequence[PodSwitch]]) -> Mapping[str, str]:
    """Owners whose pods are in several gangs: uid to a sentence about it."""
    seen: dict[str, int] = {}
    names: dict[str, str] = {}
    for group in groups:
        for uid, name in {switch.uid: switch.name for switch in group if switch.uid}.items():
            seen[uid] = seen.get(uid, 0) + 1
            names[uid] = name
    return {
        uid: f"{names[uid]} has pods in {count} gangs; to suspend it would stop all of them."
        for uid, count in seen.items()
        if count > 1
    }


def _admission_problem(workload: Work) -> str:
    if not is_admitted(workload):
        return f"Kueue has not admitted its {describe_owner(workload.owner)}, so its state is not known."
    return ""


def _plain_pod_problem(pod: PodMetadata, workload: Work) -> str:
    """Why a pod without a controller cannot be restarted: Kueue deletes plain pods that it evicts, and makes none."""
    if pod.uid not in workload.owned_by or pod.controller is not None:
        return ""
    return f"{NO_CONTROLLER} Kueue deletes them when {describe_owner(workload.owner)} is deactivated."


def _queue_problem(links: Iterable[Link]) -> str:
    for link in links:
        queue = link.work.labels.get(LABEL_QUEUE) if link.work is not None else None
        if queue:
            return f"{describe_owner(link.owner)} belongs to Kueue's queue {queue}, but it has no Workload."
    return ""


def _unknown_owner_problem(top: Work, links: Sequence[Link]) -> str:
    last = links[-1].owner
    if last.uid == top.owner.uid:
        return ""
    what = "which is not supported and may revert a stop"
    return f"{describe_owner(top.owner)} belongs to {describe_owner(last)}, {what}."


def _manager_problem(top: Work) -> str:
    manager = managed_by(top)
    return f"{describe_owner(top.owner)} is managed by {manager}, which may revert a stop." if manager else ""


_SORTS = frozenset(f"{row.group}/{row.kind}" for row in OWNERS) - {WORKLOAD}
