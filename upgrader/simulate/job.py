"""A simulated job: its nodes, its progress, its request and its acknowledgement."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.checkpoint_request.request_state import OwnerFacts
from upgrader.core.model.fleet import Gang, MemberFacts, Owner
from upgrader.core.workloads.placement import Placement
from upgrader.simulate.fleets.fleet import FleetJob

NAMESPACE = "ml"
VOLUME = "/data"


class JobState(StrEnum):
    """The state of its pods."""

    WAITING = "Waiting"  # no nodes yet
    STARTING = "Starting"  # has nodes, and does not train yet
    TRAINING = "Training"
    HALTED = "Halted"  # writes a checkpoint, or is parked
    ENDING = "Ending"  # its pods got SIGTERM
    AWAY = "Away"  # suspended, without pods
    OVER = "Over"


HAS_PODS = frozenset({JobState.STARTING, JobState.TRAINING, JobState.HALTED, JobState.ENDING})


@dataclass(kw_only=True)
class SimulatedJob:
    """Changed only together with `touch`, so that cached facts are never stale."""

    spec: FleetJob
    state: JobState = JobState.WAITING
    places: tuple[str, ...] = ()  # nodes of its members, while it has pods
    homes: tuple[str, ...] = ()  # its last nodes
    generation: int = 0  # of its pods
    pods_at: int = 0  # when they started
    done: int = 0  # seconds trained until `since`: its step
    since: int = 0
    work: int | None = None  # seconds to train in total
    declared: int | None = None  # the declared total
    suspended: bool = False
    record: str = ""  # the request in the stop annotation
    request: int = 0
    parks: int = 0  # requested park seconds
    request_count: int = 0  # number of requests
    answer: Ack | None = None  # of every member, without its uid
    unequal: bool = False  # its members answer with different steps
    slow: int = 0  # seconds of each of its checkpoints, if an event sets them
    pdb: str = ""  # a PodDisruptionBudget that allows no disruption
    placement: Placement = field(default_factory=Placement)
    token: int = 0  # of its scheduled actions; a new token cancels them
    restored: int = 0  # number of restarts after which it trained
    _gang: Gang | None = None

    @property
    def name(self) -> str:
        """Name of its gang."""
        return f"{NAMESPACE}/Job/{self.spec.name}"

    @property
    def gpus(self) -> int:
        """GPUs of all its members."""
        return self.spec.gpus * max(len(self.places), len(self.homes), self.spec.size)

    def step_at(self, now: int) -> int:
        """Seconds trained."""
        return self.done + (now - self.since if self.state is JobState.TRAINING else 0)

    def discard_cache(self) -> None:
        """Discard cached facts after a change."""
        self._gang = None

    def pod_uid(self, member: int) -> str:
        """The uid of a member's pod."""
        return f"{self.spec.name}-{member}.{self.generation}"

    def pod_uids(self) -> tuple[str, ...]:
        """The uids of all its pods."""
        return tuple(self.pod_uid(member) for member in range(len(self.places)))

    def gang_facts(self, begin: datetime, skew: timedelta) -> Gang:
        """The facts that the controller reads; `skew`: the offset of its nodes' clocks."""
        if self._gang is None:
            spec = self.spec
            members = self.member_facts(begin, skew)
            self._gang = Gang(
                name=self.name,
                namespace=NAMESPACE,
                kind="Job",
                members=members,
                owner=Owner(kind="Job", name=spec.name, uid=f"uid-{spec.name}"),
                wanted=max(spec.size, len(self.places)),
                method=spec.method,
                timeout_seconds=spec.timeout,
                stopped_by="simulated" if self.record else "",
                suspended=self.suspended,
                min_runtime_seconds=spec.min_runtime,
                ends_at=self._ends_at(begin, skew),
                lane=spec.lane,
            )
        return self._gang

    def member_facts(self, begin: datetime, skew: timedelta) -> tuple[MemberFacts, ...]:
        """The facts of its pods."""
        started = begin + timedelta(seconds=self.pods_at) + skew
        return tuple(
            MemberFacts(
                pod=f"{self.spec.name}-{index}",
                uid=self.pod_uid(index),
                namespace=NAMESPACE,
                node=node,
                container="trainer",
                phase="Running",
                gpus=self.spec.gpus,
                terminating=self.state is JobState.ENDING,
                request=str(self.request) if self.request else "",
                volume_paths=(VOLUME,),
                mounted=True,
                started_at=started,
            )
            for index, node in enumerate(self.places)
        )

    def member_answers(self) -> tuple[Ack, ...]:
        """The answers of its members; together, since they agreed on the step before."""
        answer = self.answer
        if answer is None:
            return ()
        unequal_member = len(self.places) - 1 if self.unequal else None
        return tuple(
            msgspec.structs.replace(answer, pod_uid=self.pod_uid(index), step=answer.step + (index == unequal_member))
            for index in range(len(self.places))
        )

    def owner_facts(self) -> OwnerFacts:
        """The facts of its Job object."""
        pods = len(self.places)
        return OwnerFacts(
            suspended=self.suspended,
            stopped_by=self.record,
            active=pods,
            finished=self.state is JobState.OVER,
            wanted=max(self.spec.size, pods),
        )

    def _ends_at(self, begin: datetime, skew: timedelta) -> datetime | None:
        if self.declared is None:
            return None
        return begin + timedelta(seconds=self.since + self.declared - self.done) + skew
