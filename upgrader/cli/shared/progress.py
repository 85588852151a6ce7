"""How far a plan is, and what following it ends with."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core.errors import (
    BlockedError,
    ConfigurationError,
    DeadlineError,
    RolloutFailedError,
    UnreachableError,
)
from upgrader.core.model.phases import DesiredState, PlanPhase, ends
from upgrader.core.upgrade_plan.plan_machine import CANARY_FAILED, DEADLINE_PASSED, TOO_MANY_FAILURES
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.runtime.context import Context


class Progress(Struct, frozen=True, kw_only=True):
    """A plan with its upgrades and requests, as they were at `at`."""

    at: datetime
    plan: UpgradePlan
    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]

    @property
    def current(self) -> bool:
        """Whether the status speaks of what people want now."""
        return self.plan.status.observed_generation == self.plan.metadata.generation

    @property
    def under_way(self) -> bool:
        """Whether a batch was started and has not ended."""
        return any(one.ended_at is None for one in self.plan.status.batches)


class Patience(Struct, frozen=True, kw_only=True):
    """In seconds: how often is looked, how long all that is left may be blocked, and how long is followed at all."""

    poll: float = 1.0
    blocked: float | None = 60.0
    whole: float | None = None


async def look(context: Context, name: str) -> Progress:
    """One look.

    Raises:
        ConfigurationError: the plan is not there.
    """
    plan = await context.cluster.get(UPGRADE_PLANS, name)
    if plan is None:
        raise ConfigurationError(f"there is no plan {name}", resolution="`upgrader status` lists all plans.")
    selector = f"{names.LABEL_PLAN}={name}"
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=selector)
    labelled = await context.cluster.list(CHECKPOINT_REQUESTS, labels=selector)
    requests, _ = own_requests.sort_out(labelled, plan, upgrades)
    return Progress(
        at=context.clock.now(),
        plan=plan,
        upgrades=sorted(upgrades, key=lambda one: one.spec.node.name),
        requests=sorted(requests, key=lambda one: one.spec.gang),
    )


async def looks(
    context: Context, name: str, poll: float, sleep: Callable[[float], Awaitable[None]]
) -> AsyncIterator[Progress | None]:
    """Look again and again; None where the API server did not answer: following goes on when it does."""
    while True:
        try:
            yield await look(context, name)
        except UnreachableError:
            yield None
        await sleep(poll)


class Verdicts:
    """Whether following has come to an end, and to which."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._began: datetime | None = None
        self._blocked_since: datetime | None = None

    def over(self, seen: Progress) -> bool:
        """True when the rollout is done.

        Raises:
            RolloutFailedError: it ended otherwise, or paused because something failed.
            BlockedError: all that is left has been blocked for long, or needs another approval.
            DeadlineError: it was followed as long as was asked for, or its own deadline has passed.
        """
        plan = seen.plan
        self._began = self._began or seen.at
        match plan.status.phase:
            case PlanPhase.COMPLETED:
                return True
            case PlanPhase.FAILED if plan.status.reason == DEADLINE_PASSED:
                raise DeadlineError(
                    f"plan {plan.metadata.name} ended before all its nodes were upgraded", details=plan.status.message
                )
            case PlanPhase.ABORTED | PlanPhase.FAILED | PlanPhase.SUPERSEDED:
                raise RolloutFailedError(
                    f"plan {plan.metadata.name} ended: {plan.status.phase.value}", details=plan.status.message
                )
            case PlanPhase.PAUSED if plan.spec.state is DesiredState.RUNNING and seen.current and not seen.under_way:
                raise _paused(plan)
            case PlanPhase.PROPOSED | PlanPhase.RUNNING | PlanPhase.PAUSED | PlanPhase.ABORTING:
                self._blocked(seen)
        whole = self._patience.whole
        if whole is not None and seen.at - self._began >= timedelta(seconds=whole):
            raise DeadlineError(
                f"plan {plan.metadata.name} was followed for {whole:.0f} s and has not ended",
                details=plan.status.message,
                resolution="The controller goes on; `upgrader status --watch` follows it further.",
            )
        return False

    def _blocked(self, seen: Progress) -> None:
        status = seen.plan.status
        still = status.forecast
        waits = (
            status.phase is PlanPhase.RUNNING
            and status.blockers
            and not (still.batches or still.waiting_for_completion)
        )
        if not waits or seen.under_way:
            self._blocked_since = None
            return
        self._blocked_since = self._blocked_since or seen.at
        blocked = self._patience.blocked
        if blocked is not None and seen.at - self._blocked_since >= timedelta(seconds=blocked):
            raise BlockedError(
                f"all that is left of plan {seen.plan.metadata.name} is blocked",
                details="\n".join(f"{one.reason}: {one.message}" for one in status.blockers),
                resolution="The controller goes on when the blockers go; `upgrader status --watch` follows it further.",
            )


def _paused(plan: UpgradePlan) -> BlockedError | RolloutFailedError:
    name, status = plan.metadata.name, plan.status
    if status.reason in {CANARY_FAILED, TOO_MANY_FAILURES}:
        return RolloutFailedError(
            f"plan {name} paused by itself",
            details="\n".join(f"{one.subject}: {one.reason}: {one.message}" for one in status.failures),
            resolution=f"`upgrader resume {name}` goes on, `upgrader rollback {name}` goes back.",
        )
    return BlockedError(
        f"plan {name} waits for another approval",
        details=status.message,
        resolution=f"`upgrader approve {name}` shows what is to come and asks.",
    )


def changes(before: Progress | None, after: Progress) -> list[str]:
    """What is new since the last look, as lines."""
    lines = []
    plan = after.plan.status
    if before is None or (before.plan.status.phase, before.plan.status.message) != (plan.phase, plan.message):
        lines.append(_line(f"plan {after.plan.metadata.name}", plan.phase.value, plan.message))
    known = _known(before) if before is not None else {}
    for upgrade in after.upgrades:
        if known.get(upgrade.metadata.uid) != _said(upgrade):
            back = " (going back)" if upgrade.status.reverting and not ends(upgrade.status.phase) else ""
            lines.append(_line(f"node {upgrade.spec.node.name}", f"{upgrade.status.phase.value}{back}", _why(upgrade)))
    lines += [
        _line(f"gang {request.spec.gang}", request.status.phase.value, request.status.message)
        for request in after.requests
        if known.get(request.metadata.uid) != _said(request)
    ]
    return lines


def _known(before: Progress) -> dict[str, tuple[str, ...]]:
    upgrades = {one.metadata.uid: _said(one) for one in before.upgrades}
    return upgrades | {one.metadata.uid: _said(one) for one in before.requests}


def _said(one: NodeUpgrade | CheckpointRequest) -> tuple[str, ...]:
    back = str(one.status.reverting) if isinstance(one, NodeUpgrade) else ""
    return (one.status.phase.value, one.status.message, back)


def _why(upgrade: NodeUpgrade) -> str:
    return ": ".join(part for part in (upgrade.status.reason, upgrade.status.message) if part)


def _line(subject: str, phase: str, message: str) -> str:
    return f"{subject}: {phase}{f', {message}' if message else ''}"
