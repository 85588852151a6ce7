"""A simulated job: where it runs, how far it is, what it was asked and what it answered."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from upgrader.core.checkpoint_request.acknowledgements import Answer
from upgrader.core.checkpoint_request.request_state import OwnerFacts
from upgrader.core.model.fleet import Gang, MemberFacts, Owner
from upgrader.core.workloads.placement import Placement
from upgrader.simulate.fleets.fleet import SimJob

NAMESPACE = "ml"
VOLUME = "/data"


class Life(StrEnum):
    """What its pods do."""

    WAITING = "Waiting"  # no node yet
    STARTING = "Starting"  # has nodes, does not train yet
    TRAINING = "Training"
    HALTED = "Halted"  # writes a checkpoint, or is parked after one
    ENDING = "Ending"  # its pods get SIGTERM
    AWAY = "Away"  # suspended, no pods
    OVER = "Over"


HAS_PODS = frozenset({Life.STARTING, Life.TRAINING, Life.HALTED, Life.ENDING})


@dataclass(kw_only=True)
class Job:
    """Changed through `touch`, or followed by it: what was read of it before is never stale."""

    spec: SimJob
    life: Life = Life.WAITING
    places: tuple[str, ...] = ()  # nodes of its members, while it has pods
    homes: tuple[str, ...] = ()  # where it ran last
    generation: int = 0  # of its pods
    pods_at: int = 0  # when they started
    done: int = 0  # seconds trained until `since`: its step
    since: int = 0
    work: int | None = None  # seconds to train in all
    declared: int | None = None  # and what it says about that
    suspended: bool = False
    record: str = ""  # the request in our stop annotation
    request: int = 0
    parks: int = 0  # seconds that it was asked to stay parked
    asked: int = 0  # how often
    answer: Answer | None = None  # of every member, save its uid
    unequal: bool = False  # its members answer with different steps
    slow: int = 0  # seconds that each of its checkpoints takes, if that was said
    pdb: str = ""  # a PodDisruptionBudget that allows nothing
    placement: Placement = field(default_factory=Placement)
    token: int = 0  # of what was scheduled for it; a later one makes it void
    restored: int = 0  # how often it trained again after a restart
    _gang: Gang | None = None

    @property
    def name(self) -> str:
        """Name of its gang."""
        return f"{NAMESPACE}/Job/{self.spec.name}"

    @property
    def gpus(self) -> int:
        """GPUs of all its members."""
        return self.spec.gpus * max(len(self.places), len(self.homes), self.spec.size)

    def step(self, now: int) -> int:
        """Seconds trained."""
        return self.done + (now - self.since if self.life is Life.TRAINING else 0)

    def touch(self) -> None:
        """It changed."""
        self._gang = None

    def uid(self, member: int) -> str:
        """Of a member's pod."""
        return f"{self.spec.name}-{member}.{self.generation}"

    def uids(self) -> tuple[str, ...]:
        """Of all pods that it has."""
        return tuple(self.uid(member) for member in range(len(self.places)))

    def gang(self, begin: datetime, skew: timedelta) -> Gang:
        """As the controller reads it; `skew`: how far the clocks of its nodes are ahead."""
        if self._gang is None:
            spec = self.spec
            members = self.members(begin, skew)
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

    def members(self, begin: datetime, skew: timedelta) -> tuple[MemberFacts, ...]:
        """Its pods."""
        started = begin + timedelta(seconds=self.pods_at) + skew
        return tuple(
            MemberFacts(
                pod=f"{self.spec.name}-{at}",
                uid=self.uid(at),
                namespace=NAMESPACE,
                node=node,
                container="trainer",
                phase="Running",
                gpus=self.spec.gpus,
                terminating=self.life is Life.ENDING,
                request=str(self.request) if self.request else "",
                volume_paths=(VOLUME,),
                mounted=True,
                started_at=started,
            )
            for at, node in enumerate(self.places)
        )

    def answers(self) -> tuple[Answer, ...]:
        """What its members say; together, since they agreed on the step before."""
        said = self.answer
        if said is None:
            return ()
        odd = len(self.places) - 1 if self.unequal else None
        return tuple(
            Answer(
                pod_uid=self.uid(at),
                request_id=said.request_id,
                step=said.step + (at == odd),
                uri=said.uri,
                parked=said.parked,
                refused=said.refused,
            )
            for at in range(len(self.places))
        )

    def owner(self) -> OwnerFacts:
        """Its Job object."""
        pods = len(self.places)
        return OwnerFacts(
            suspended=self.suspended,
            stopped_by=self.record,
            active=pods,
            finished=self.life is Life.OVER,
            wanted=max(self.spec.size, pods),
        )

    def _ends_at(self, begin: datetime, skew: timedelta) -> datetime | None:
        if self.declared is None:
            return None
        return begin + timedelta(seconds=self.since + self.declared - self.done) + skew
