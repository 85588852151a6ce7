"""Which owner a gang is stopped and restarted by, and where there is none, why: doubt leaves it alone.

Kueue's Workload first, where it is admitted; else the topmost owner with a switch of its own, never a child of one. An
owner that belongs to something which we do not know is left alone too, since that one may undo what we do.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from upgrader.core.workloads.gang_rules import PodMarks
from upgrader.core.workloads.owner_chain import Chains, Link
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.core.workloads.owner_objects import LABEL_QUEUE, WORKLOAD, Work, admitted, managed_by, shown, sort_of

NO_CONTROLLER = "Its pods have no controller that would make them again."


class Switched(Struct, frozen=True, kw_only=True):
    """What stops a pod: `work` is switched off; `uid` and `name` tell it from others also where it cannot be."""

    uid: str = ""
    name: str = ""
    work: Work | None = None  # what is switched off
    counted: Work | None = None  # what says how many pods there should be
    problem: str = ""  # why it cannot be stopped and restarted by us


def switch_of(pod: PodMarks, chains: Chains) -> Switched:
    """What stops and restarts one pod."""
    links = chains.above(pod.controller)
    top = next((link.work for link in reversed(links) if link.work is not None and link.work.row is not None), None)
    workload = chains.workload([*(link.owner.uid for link in reversed(links)), pod.uid])
    if workload is not None:
        name, problem = shown(workload.owner), _problem_of(workload) or _replaces(pod, workload)
        return Switched(uid=workload.owner.uid, name=name, work=workload, counted=top, problem=problem)
    if top is not None:
        problem = _queued(links) or _above(top, links) or _managed(top)
        return Switched(uid=top.owner.uid, name=shown(top.owner), work=top, counted=top, problem=problem)
    if not links:
        return Switched(problem=NO_CONTROLLER)
    owner = links[-1].owner
    problem = (
        f"Its {shown(owner)} is gone or was replaced by another of this name."
        if sort_of(owner) in _SORTS
        else f"Nothing is known here that stops and restarts a {owner.kind}, and its pods belong to {shown(owner)}."
    )
    return Switched(uid=owner.uid, name=shown(owner), problem=problem)


def one_switch(name: str, kind: str, found: Sequence[Switched]) -> Switched:
    """The one switch of all pods of a gang (its `name` without namespace, and `kind`)."""
    by_uid = {one.uid: one for one in found}
    if len(by_uid) == 1:
        return found[0]
    owners = sorted(one.name for one in by_uid.values())
    listed = ", ".join(owner or "no controller at all" for owner in owners)
    what = name if kind != "pod-group" else f"Pod group {name}"
    return Switched(problem=f"{what} has pods of several owners ({listed}), which cannot be suspended in one write.")


def parted(groups: Iterable[Sequence[Switched]]) -> Mapping[str, str]:
    """Owners whose pods are in several gangs: uid to the sentence that says so."""
    seen: dict[str, int] = {}
    names: dict[str, str] = {}
    for group in groups:
        for uid, name in {one.uid: one.name for one in group if one.uid}.items():
            seen[uid] = seen.get(uid, 0) + 1
            names[uid] = name
    return {
        uid: f"{names[uid]} has pods in {count} gangs, and its one switch would stop them all."
        for uid, count in seen.items()
        if count > 1
    }


def _problem_of(workload: Work) -> str:
    if not admitted(workload):
        return f"Kueue has not admitted its {shown(workload.owner)}, so that one does not say whether it runs."
    return ""


def _replaces(pod: PodMarks, workload: Work) -> str:
    """Kueue deletes plain pods that it evicts, and makes none: a pod is made again by its controller or by nobody."""
    if pod.uid not in workload.owned_by or pod.controller is not None:
        return ""
    return f"{NO_CONTROLLER} Kueue deletes them when its {shown(workload.owner)} is switched off."


def _queued(links: Iterable[Link]) -> str:
    for link in links:
        queue = link.work.labels.get(LABEL_QUEUE) if link.work is not None else None
        if queue:
            return f"{shown(link.owner)} belongs to Kueue's queue {queue}, and no Workload of it is to be seen."
    return ""


def _above(top: Work, links: Sequence[Link]) -> str:
    last = links[-1].owner
    if last.uid == top.owner.uid:
        return ""
    return f"{shown(top.owner)} belongs to {shown(last)}, which is not known here and may undo what is done to it."


def _managed(top: Work) -> str:
    manager = managed_by(top)
    return f"{shown(top.owner)} is managed by {manager}, which may undo what is done to it." if manager else ""


_SORTS = frozenset(f"{row.group}/{row.kind}" for row in OWNERS) - {WORKLOAD}
