"""The state of a rollout in the controller, as in NodeUpgrades, CheckpointRequests and the plan's status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.constraints.batch import BatchKind
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader.core.node_upgrade.upgrade_state import PodOutcome, PodResult
from upgrader.core.upgrade_plan.plan_state import RequestSummary, UpgradeFacts

ABSENT, WAITING = PodResult(), PodResult(outcome=PodOutcome.WAITING)


@dataclass(kw_only=True)
class Upgrade:
    """A NodeUpgrade, and the state of its pods on the node."""

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
    revert_message: str = ""
    """The message of the revert."""
    gpus: int = 0
    began: dict[NodePhase, datetime] = field(default_factory=dict)
    """When each phase began; the last time for a repeated phase."""
    reached_loading: bool = False
    """Whether it reached the phase that loads a driver."""
    ended_at: datetime | None = None
    prepare: PodResult = ABSENT
    upgrading: PodResult = ABSENT
    validate: PodResult = ABSENT
    operands: int = 2
    """Pods of driver and plugin that remain while they are removed."""
    driver_ready: bool = False
    plugin_ready: bool = False

    @property
    def goal(self) -> tuple[str, str]:
        """The current target: the source while it reverts."""
        return self.source if self.reverting else self.target

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return is_final(self.phase)

    def plan_facts(self) -> UpgradeFacts:
        """The facts for the plan."""
        failed = self.phase is NodePhase.FAILED
        return UpgradeFacts(
            name=self.uid,
            node=self.node,
            batch=self.batch,
            phase=self.phase,
            failure=self.failure,
            message=(self.revert_message or self.message) if failed else self.message,
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
    """When it was admitted to its lane."""
    phase: RequestPhase = RequestPhase.REQUESTED
    deadline: datetime | None = None
    reason: str = ""
    message: str = ""
    step: int | None = None
    acks: tuple[Ack, ...] = ()
    stopped_at: datetime | None = None
    restart_by: datetime | None = None
    restarted_at: datetime | None = None
    began: dict[RequestPhase, datetime] = field(default_factory=dict)
    """When each phase began."""
    restarted_early: bool = False
    """Restarted early on other, upgraded nodes; it does not return to its own nodes."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return is_final(self.phase)

    @property
    def stop_before(self) -> datetime:
        """When its members resume training without a stop."""
        return self.asked_at + timedelta(seconds=self.park_seconds)

    def plan_facts(self) -> RequestSummary:
        """The facts for the plan."""
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
class SimGroup:
    """A group of the open batch."""

    name: str
    nodes: tuple[str, ...]
    gangs: tuple[str, ...]
    gpus: int
    ask_until: datetime
    upgrades: list[Upgrade] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    scheduled_steps: set[int] = field(default_factory=set)
    """Seconds in which a step is scheduled."""

    @property
    def is_over(self) -> bool:
        """Whether all of it has ended."""
        return all(upgrade.is_over for upgrade in self.upgrades) and all(request.is_over for request in self.requests)


@dataclass(kw_only=True)
class SimBatch:
    """A started batch."""

    number: int
    kind: BatchKind
    groups: list[SimGroup]
    started_at: int
    classes: Mapping[str, str]
    """Of its nodes before their upgrades, see core.forecast.canaries."""
    ended_at: int | None = None
