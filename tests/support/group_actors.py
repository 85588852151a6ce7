"""Nodes and gangs of a group as plain values, which tests/support/group_world.py walks through an upgrade."""

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from tests.support.facts import node as node_facts
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.node_upgrade.upgrade_state import (
    PodOutcome,
    PodResult,
)
from upgrader_dev.simulated.cluster.ports import START

OLD, NEW = "old", "new"


@dataclass
class Box:
    """A node with its upgrade."""

    name: str
    fresh: bool = False  # was never installed
    phase: NodePhase = NodePhase.PENDING
    since: datetime = START
    deadline: datetime | None = None
    reverting: bool = False
    failure: str = ""
    facts: NodeFacts | None = None
    pod_results: dict[str, PodOutcome] = field(default_factory=dict)
    driver: int = 1
    plugin: int = 1
    stranger: bool = False
    reverts: int = 0

    def __post_init__(self) -> None:
        had = "" if self.fresh else OLD
        self.facts = node_facts(
            self.name, uid=self.name, driver_key=had, plugin_key=had, operands="on" if had else "", revision=had
        )

    @property
    def goal(self) -> str:
        return ("" if self.fresh else OLD) if self.reverting else NEW

    @property
    def first_upgrades(self) -> bool:
        """Whether the upgrade Job of the way there works on while the node goes back."""
        return self.reverting and self.pod_results.get("upgrade") is PodOutcome.WAITING

    def mark(self, **changes: object) -> None:
        assert self.facts is not None
        self.facts = msgspec.structs.replace(self.facts, **changes)

    def pod_result(self, name: str) -> PodResult:
        return PodResult(outcome=self.pod_results.get(f"{name}{'-back' if self.reverting else ''}", PodOutcome.ABSENT))

    def begin(self, name: str) -> None:
        self.pod_results.setdefault(f"{name}{'-back' if self.reverting else ''}", PodOutcome.WAITING)


@dataclass
class Troupe:
    """A gang with its request."""

    name: str
    members: int = 2
    phase: RequestPhase | None = None  # None: not asked yet
    deadline: datetime | None = None
    restart_by: datetime | None = None
    request_id: int = 1
    asked_at: datetime = START
    uids: tuple[str, ...] = ()
    pods: dict[str, str] = field(default_factory=dict)  # uid -> request annotation
    answers: dict[str, Ack] = field(default_factory=dict)
    recorded: tuple[Ack, ...] = ()
    progress: dict[str, int] = field(default_factory=dict)
    step: int | None = None
    suspended: bool = False
    stopped_by: str = ""
    deleted: bool = False
    finished: bool = False
    stops: int = 0
    generation: int = 0
    meddled: bool = False  # a person resumed it: its pods are wherever they please
    ahead: bool = False  # went on elsewhere while its nodes are upgraded

    def __post_init__(self) -> None:
        self.run()

    def run(self) -> None:
        """The Job's controller starts all members anew."""
        self.generation += 1
        self.pods = {f"{self.name}-{self.generation}-{i}": "" for i in range(self.members)}
        self.progress = {}
