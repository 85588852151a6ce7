"""Chains of owners: from a pod's controller up to its topmost owner, through all owners that were read."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations, nearest_declared
from upgrader.core.workloads.owner_kinds import DECLARING
from upgrader.core.workloads.owner_objects import WORKLOAD, Work

_DECLARING = frozenset(f"{kind.group}/{kind.kind}" for kind in DECLARING)


class Link(Struct, frozen=True, kw_only=True):
    """One owner above a pod; `work` is None if it was not read, or does not exist."""

    owner: Owner
    work: Work | None = None


class Chains:
    """Ownership of pods and owners.

    Args:
        works: owners as they were read.
        pods: uid of each pod to its controller. Some pods own others, such as the leaders of a LeaderWorkerSet.
    """

    def __init__(self, works: Iterable[Work], pods: Mapping[str, Owner | None] | None = None) -> None:
        everything = sorted(works, key=lambda work: (work.namespace, work.owner.kind, work.owner.name, work.owner.uid))
        self._pods = pods or {}
        self._all_read = not any(work.unread for work in everything)
        self._declaring = {work.owner.uid: work for work in everything if work.sort in _DECLARING}
        everything = [work for work in everything if work.sort not in _DECLARING]
        self._works = {work.owner.uid: work for work in everything if work.sort != WORKLOAD}
        self._workloads: dict[str, Work] = {}
        self._children: dict[str, list[Work]] = {}
        self._known: dict[str, tuple[Link, ...]] = {}
        self._declared: dict[str, CheckpointAnnotations] = {}
        for work in everything:
            if work.sort == WORKLOAD:
                for uid in work.owned_by:
                    self._workloads.setdefault(uid, work)
            elif work.controller is not None:
                self._children.setdefault(work.controller.uid, []).append(work)

    def owners_above(self, controller: Owner | None) -> tuple[Link, ...]:
        """The controller and its owners, from below; pods and CronJobs (which resume nothing) are left out."""
        if controller is None:
            return ()
        links = self._known.get(controller.uid)
        if links is None:
            links = self._known[controller.uid] = tuple(self._climb_owners(controller))
        return links

    def work(self, uid: str) -> Work | None:
        """The owner of that uid."""
        return self._works.get(uid)

    def children(self, uid: str) -> tuple[Work, ...]:
        """The objects that an owner controls, of those that were read, by name."""
        return tuple(self._children.get(uid, ()))

    def workload(self, uids: Iterable[str]) -> Work | None:
        """Kueue's Workload for the first of these owners (or pods) that has one."""
        return next((work for uid in uids if (work := self._workloads.get(uid)) is not None), None)

    def declared(self, controller: Owner | None) -> CheckpointAnnotations:
        """The declarations of owners, the nearest to the pod first, then of Kueue's Workload."""
        uid = controller.uid if controller is not None else ""
        declared = self._declared.get(uid)
        if declared is None:
            works = self._declaring_objects(controller)
            declared = self._declared[uid] = nearest_declared([work.declared for work in works])
        return declared

    def unread(self, controller: Owner | None) -> str:
        """Why an owner above cannot be read; empty if all can."""
        if self._all_read:
            return ""
        return next((work.unread for work in self._declaring_objects(controller) if work.unread), "")

    def _declaring_objects(self, controller: Owner | None) -> list[Work]:
        """All objects whose declarations hold for the pods of a controller, the nearest first."""
        links = self.owners_above(controller)
        workload = self.workload(link.owner.uid for link in reversed(links))
        works = [*(link.work for link in links), *self._metadata_owners(links), workload]
        return [work for work in works if work is not None]

    def _metadata_owners(self, links: Sequence[Link]) -> Iterable[Work]:
        """Owners of which only metadata was read, from the topmost link upwards: ReplicaSet, then Deployment."""
        seen: set[str] = set()
        above = links[-1].owner if links else None
        while above is not None and above.uid not in seen:
            seen.add(above.uid)
            work = self._declaring.get(above.uid)
            above = work.controller if work is not None else None
            if work is not None:
                yield work

    def _climb_owners(self, controller: Owner) -> Iterable[Link]:
        seen: set[str] = set()
        above: Owner | None = controller
        while above is not None and above.uid not in seen and above.kind != "CronJob":
            seen.add(above.uid)
            work = self._works.get(above.uid)
            if above.uid in self._pods:
                above = self._pods[above.uid]
                continue
            yield Link(owner=above, work=work)
            above = work.controller if work is not None else None
