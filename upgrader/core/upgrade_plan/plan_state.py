"""Views and decisions of an UpgradePlan: values of core.upgrade_plan.plan_machine."""

from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.model.phases import DesiredState, NodePhase, OnFailure, PlanPhase, RequestPhase, is_final
from upgrader.core.node_upgrade.upgrade_state import ABORTED, DRIVER_CHANGED

RETRIED_LATER = frozenset(
    {
        "NotAcknowledged",
        "SiblingFailed",
        "NewGpuPod",
        "NewPod",
        "AcknowledgementLost",
        "NotClosed",
        "NotDrained",
        "NotPrepared",
        DRIVER_CHANGED,
    }
)
"""Failures after which the node runs what it ran before and its gang trained on: the upgrade is retried later."""

QUIET = frozenset(
    {
        "NotAcknowledged",
        "SiblingFailed",
        "NewGpuPod",
        "NewPod",
        "AcknowledgementLost",
        "NotClosed",
        DRIVER_CHANGED,
        ABORTED,
        "SiblingReverted",
    }
)
"""Failures that do not count for the rollout: a workload refused, time ran out, or a sibling's failure counts."""


class UpgradeFacts(Struct, frozen=True, kw_only=True):
    """A NodeUpgrade of the plan."""

    name: str
    node: str
    batch: int
    phase: NodePhase
    failure: str = ""
    message: str = ""
    ended_at: datetime | None = None


class RequestSummary(Struct, frozen=True, kw_only=True):
    """A CheckpointRequest of the plan."""

    name: str
    gang: str
    batch: int
    phase: RequestPhase
    reason: str = ""
    message: str = ""
    late: bool = False  # restarted since its upgrades took too long


class Trouble(Struct, frozen=True, kw_only=True):
    """A failure in the form that the plan's status shows."""

    subject: str
    reason: str
    message: str


class NextBatch(Struct, frozen=True, kw_only=True):
    """The batch that the forecast would start next."""

    interruptions: int = 0  # gangs that it would stop
    starts_at: datetime | None = None  # not before; None: now
    waits_for: str = ""  # what it waits for until then
    canary: bool = False  # of a class that no canary has proven: it does not wait for the soak of others


class Canaries(Struct, frozen=True, kw_only=True):
    """Nodes that are upgraded first, and watched before others are."""

    enabled: bool = False  # a resume of a plan whose canaries failed switches them off
    batches: frozenset[int] = frozenset()  # numbers of the started batches that are canaries
    soak_seconds: int = 0
    soak_until: datetime | None = None  # written when their batch ended
    unwell: tuple[Trouble, ...] = ()  # canaries that were released and are unhealthy now


class PlanLosses(Struct, frozen=True, kw_only=True):
    """GPU-hours: the loss so far, the expected loss of the rest, and the limit of the approval."""

    actual: float = 0.0
    expected: float = 0.0
    approved: float | None = None  # None: any


class PlanView(Struct, frozen=True, kw_only=True):
    """A plan with all that its next step depends on."""

    name: str
    now: datetime
    phase: PlanPhase
    state: DesiredState
    deleted: bool
    approved: bool
    target_revision: str
    stack_present: bool
    stack_revision: str | None  # update revision of the stack now
    started_stack_revision: str | None  # the same, when the plan started
    first: str | None  # another plan of the stack that has precedence: until it ends no batch starts
    tolerated_failures: int
    max_interruptions: int
    interrupted: int = 0  # gangs that it has stopped, or ended as expendable if no owner restarts them
    batches: int
    open_batch: int | None  # number of the batch that has not been ended
    created: bool  # every upgrade of the open batch exists
    reason: str = ""  # why it is in its phase, from its status
    on_drift: bool = False  # its stack created it on drift, for its present revision
    upgrades: tuple[UpgradeFacts, ...] = ()
    requests: tuple[RequestSummary, ...] = ()
    next_batch: NextBatch | None = None
    waiting: int = 0  # drifted nodes that the forecast blocks, or that cool down
    waiting_for_completion: int = 0  # nodes that wait for the natural end of their jobs
    installs: int = 0  # nodes without a driver, which the stack installs without a plan
    canaries: Canaries = Canaries()
    losses: PlanLosses = PlanLosses()
    deadline: datetime | None = None  # no batch starts after it
    on_failure: OnFailure = OnFailure.PAUSE
    synced: bool = True
    revision_known: bool = True  # the target's ControllerRevision is written
    problem: str = ""  # why no forecast can be created, if a user has to correct that
    stopped: tuple[str, ...] = ()  # owners that it stopped and that no request restarts; for messages


class PlanDecision(Struct, frozen=True, kw_only=True):
    """The record that is written, and the acts that follow it."""

    phase: PlanPhase
    message: str
    reason: str = ""
    start_batch: bool = False
    end_batch: bool = False
    undo: bool = False  # its upgrades and requests are undone
    soak_until: datetime | None = None  # the canaries' batch has just ended, and they are watched until then
    failures: tuple[Trouble, ...] = ()


def is_quiet(view: PlanView) -> bool:
    """Whether no upgrade of the plan is in progress, and no gang is requested to checkpoint, stopped or restarting."""
    return all(is_final(upgrade.phase) for upgrade in view.upgrades) and all(
        is_final(request.phase) for request in view.requests
    )


STOPPED_WAITS = timedelta(hours=1)
"""How long the end of a plan waits for owners that it stopped and whose request was deleted; their stack restarts them
within half of that, unless the API server refuses it."""


def waits_for_stopped(view: PlanView) -> bool:
    """Whether the plan cannot end yet, since owners that it stopped are still to be restarted."""
    ended = [upgrade.ended_at for upgrade in view.upgrades if upgrade.ended_at is not None]
    return bool(view.stopped and ended) and view.now < max(ended) + STOPPED_WAITS


def still_stopped(view: PlanView) -> tuple[Trouble, ...]:
    """Owners that a plan leaves stopped, because they were not restarted in time."""
    message = (
        "stopped by this plan, and its CheckpointRequest was deleted; see the condition StoppedOwners of the stack"
    )
    return tuple(Trouble(subject=owner, reason="StillStopped", message=message) for owner in view.stopped)


def plan_failures(view: PlanView) -> tuple[Trouble, ...]:
    """Failures that a user should check: failed upgrades, and gangs that did not restart."""
    nodes = [
        Trouble(subject=upgrade.node, reason=upgrade.failure, message=upgrade.message)
        for upgrade in view.upgrades
        if upgrade.phase is NodePhase.FAILED and upgrade.failure not in QUIET
    ]
    gangs = [
        Trouble(subject=request.gang, reason=request.reason, message=request.message)
        for request in view.requests
        if request.phase is RequestPhase.ENDED and request.reason == "NotRestored"
    ]
    late = [
        Trouble(subject=request.gang, reason="RestartByPassed", message="restarted before its upgrades had ended")
        for request in view.requests
        if request.late
    ]
    return (*nodes, *gangs, *late)


def settled_nodes(
    upgrades: tuple[UpgradeFacts, ...], retry: timedelta, now: datetime, *, blocked: frozenset[str] = frozenset()
) -> tuple[frozenset[str], frozenset[str]]:
    """Nodes that this plan does not upgrade again, and nodes that it does not upgrade for a while.

    A node whose group was released is retried after `retry`; a node whose upgrade failed is left to a user.
    `blocked`: upgrades that were released because a gang refused; their nodes wait as long as that gang exists.
    """
    latest = {upgrade.node: upgrade for upgrade in sorted(upgrades, key=lambda upgrade: upgrade.batch)}
    settled, cooling = set(), set()
    for node, upgrade in latest.items():
        if not is_final(upgrade.phase) or upgrade.phase is NodePhase.NODE_DELETED:
            continue
        # A node that was released stays settled: the cache may still show its former state.
        if upgrade.phase is NodePhase.SUCCEEDED or upgrade.failure not in RETRIED_LATER:
            settled.add(node)
        elif upgrade.name not in blocked and upgrade.ended_at is not None and now < upgrade.ended_at + retry:
            cooling.add(node)
    return frozenset(settled), frozenset(cooling)
