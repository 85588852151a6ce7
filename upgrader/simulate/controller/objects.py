"""What the controller keeps about a rollout, as in NodeUpgrades, CheckpointRequests and the plan's status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from upgrader.core.checkpoint_request.acknowledgements import Answer
from upgrader.core.constraints.batch import BatchKind
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader.core.node_upgrade.upgrade_state import Outcome, PodResult
from upgrader.core.upgrade_plan.plan_state import RequestSummary, UpgradeFacts

ABSENT, WAITING = PodResult(), PodResult(outcome=Outcome.WAITING)


@dataclass(kw_only=True)
class Upgrade:
    """A NodeUpgrade, and how far its pods on the node are."""

    uid: str
    node: str
    node_uid: str
    batch: int
    group: str
    source: tuple[str, str]
    """Key of the driver image and revision before the upgrade."""
    target: tuple[str, str]
    since: datetime
    phase: NodePhase = NodePhase.PENDING
    deadline: datetime | None = None
    reverting: bool = False
    failure: str = ""
    message: str = ""
    why: str = ""
    """What was said where it turned round."""
    gpus: int = 0
    began: dict[NodePhase, datetime] = field(default_factory=dict)
    """When each phase began that it came into; for one that goes back, the last time."""
    walked: bool = False
    """It came as far as switching a driver on."""
    ended_at: datetime | None = None
    prepare: PodResult = ABSENT
    upgrading: PodResult = ABSENT
    validate: PodResult = ABSENT
    operands: int = 2
    """Pods of driver and plugin that are left while it switches them off."""
    driver_ready: bool = False
    plugin_ready: bool = False

    @property
    def goal(self) -> tuple[str, str]:
        """Where the walk goes now."""
        return self.source if self.reverting else self.target

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return is_final(self.phase)

    def facts(self) -> UpgradeFacts:
        """As the plan sees it."""
        failed = self.phase is NodePhase.FAILED
        return UpgradeFacts(
            name=self.uid,
            node=self.node,
            batch=self.batch,
            phase=self.phase,
            failure=self.failure,
            message=(self.why or self.message) if failed else self.message,
            ended_at=self.ended_at,
        )


@dataclass(kw_only=True)
class Request:
    """A CheckpointRequest."""

    name: str
    gang: str
    job: str
    batch: int
    group: str
    request_id: int
    asked_at: datetime
    park_seconds: int
    members: tuple[str, ...]
    lane: str
    timeout_seconds: int
    admitted_at: datetime | None = None
    """When its turn in its lane came."""
    phase: RequestPhase = RequestPhase.REQUESTED
    deadline: datetime | None = None
    reason: str = ""
    message: str = ""
    step: int | None = None
    acks: tuple[Answer, ...] = ()
    stopped_at: datetime | None = None
    restart_by: datetime | None = None
    restarted_at: datetime | None = None
    began: dict[RequestPhase, datetime] = field(default_factory=dict)
    """When each phase began that it came into."""
    restarted_early: bool = False
    """Restarted on other nodes, which were upgraded before; it does not come back to its own."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return is_final(self.phase)

    @property
    def stop_before(self) -> datetime:
        """When its members train on by themselves."""
        return self.asked_at + timedelta(seconds=self.park_seconds)

    def facts(self) -> RequestSummary:
        """As the plan sees it."""
        late = self.restarted_at is not None and self.restart_by is not None and self.restarted_at >= self.restart_by
        return RequestSummary(
            name=self.name,
            gang=self.gang,
            batch=self.batch,
            phase=self.phase,
            reason=self.reason,
            message=self.message,
            late=late,
        )


@dataclass(kw_only=True)
class UpgradeGroup:
    """A group of the open batch."""

    name: str
    nodes: tuple[str, ...]
    gangs: tuple[str, ...]
    gpus: int
    ask_until: datetime
    upgrades: list[Upgrade] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    looks: set[int] = field(default_factory=set)
    """When it will be looked at."""

    @property
    def over(self) -> bool:
        """Whether all of it has ended."""
        return all(upgrade.over for upgrade in self.upgrades) and all(request.over for request in self.requests)


@dataclass(kw_only=True)
class Batch:
    """A started batch."""

    number: int
    kind: BatchKind
    groups: list[UpgradeGroup]
    started_at: int
    classes: Mapping[str, str]
    """Of its nodes before their upgrades, see core.forecast.canaries."""
    ended_at: int | None = None
