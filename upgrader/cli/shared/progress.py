"""The progress of a plan, and the result of following it."""

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
from upgrader.core.model.phases import DesiredState, PlanPhase, is_final
from upgrader.core.upgrade_plan.plan_machine import CANARY_FAILED, DEADLINE_PASSED, TOO_MANY_FAILURES
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.runtime.context import Context


class Progress(Struct, frozen=True, kw_only=True):
    """A plan with its upgrades and requests at the time `at`."""

    at: datetime
    plan: UpgradePlan
    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]

    @property
    def is_current(self) -> bool:
        """Whether the status is for the current generation of the spec."""
        return self.plan.status.observed_generation == self.plan.metadata.generation

    @property
    def under_way(self) -> bool:
        """Whether a batch has started and not ended."""
        return any(batch.ended_at is None for batch in self.plan.status.batches)


class Patience(Struct, frozen=True, kw_only=True):
    """In seconds: interval of polls, maximum time that all remaining nodes may be blocked, maximum time in total."""

    poll: float = 1.0
    blocked: float | None = 60.0
    whole: float | None = None


async def read_progress(context: Context, name: str) -> Progress:
    """Read a plan with its upgrades and requests.

    Raises:
        ConfigurationError: the plan is not found.
    """
    plan = await context.cluster.get(UPGRADE_PLANS, name)
    if plan is None:
        raise ConfigurationError(f"plan {name} not found", resolution="`upgrader status` lists all plans.")
    selector = f"{names.LABEL_PLAN}={name}"
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=selector)
    labelled = await context.cluster.list(CHECKPOINT_REQUESTS, labels=selector)
    requests, _ = own_requests.sort_out(labelled, plan, upgrades)
    return Progress(
        at=context.clock.now(),
        plan=plan,
        upgrades=sorted(upgrades, key=lambda upgrade: upgrade.spec.node.name),
        requests=sorted(requests, key=lambda request: request.spec.gang),
    )


async def poll_progress(
    context: Context, name: str, poll: float, sleep: Callable[[float], Awaitable[None]]
) -> AsyncIterator[Progress | None]:
    """Read a plan repeatedly; None if the API server is not reachable."""
    while True:
        try:
            yield await read_progress(context, name)
        except UnreachableError:
            yield None
        await sleep(poll)


class Verdicts:
    """Evaluates whether following a plan has ended, and how."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._began: datetime | None = None
        self._blocked_since: datetime | None = None

    def has_ended(self, seen: Progress) -> bool:
        """True if the rollout is completed.

        Raises:
            RolloutFailedError: the plan ended otherwise, or was paused after failures.
            BlockedError: all remaining nodes were blocked for too long, or another approval is required.
            DeadlineError: the maximum time to follow has passed, or the deadline of the plan.
        """
        plan = seen.plan
        self._began = self._began or seen.at
        match plan.status.phase:
            case PlanPhase.COMPLETED:
                return True
            case PlanPhase.FAILED if plan.status.reason == DEADLINE_PASSED:
                raise DeadlineError(
                    f"plan {plan.metadata.name} ended before all nodes were upgraded", details=plan.status.message
                )
            case PlanPhase.ABORTED | PlanPhase.FAILED | PlanPhase.SUPERSEDED:
                raise RolloutFailedError(
                    f"plan {plan.metadata.name} ended: {plan.status.phase.value}", details=plan.status.message
                )
            case PlanPhase.PAUSED if plan.spec.state is DesiredState.RUNNING and seen.is_current and not seen.under_way:
                raise _paused_error(plan)
            case PlanPhase.PROPOSED | PlanPhase.RUNNING | PlanPhase.PAUSED | PlanPhase.ABORTING:
                self._blocked(seen)
        whole = self._patience.whole
        if whole is not None and seen.at - self._began >= timedelta(seconds=whole):
            raise DeadlineError(
                f"plan {plan.metadata.name} has not ended after {whole:.0f} s",
                details=plan.status.message,
                resolution="The controller continues the plan; follow it with `upgrader status --watch`.",
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
                f"all remaining nodes of plan {seen.plan.metadata.name} are blocked",
                details="\n".join(f"{blocker.reason}: {blocker.message}" for blocker in status.blockers),
                resolution="The controller continues the plan when the blockers are resolved; follow it with `upgrader "
                "status --watch`.",
            )


def _paused_error(plan: UpgradePlan) -> BlockedError | RolloutFailedError:
    name, status = plan.metadata.name, plan.status
    if status.reason in {CANARY_FAILED, TOO_MANY_FAILURES}:
        return RolloutFailedError(
            f"plan {name} is paused after failures",
            details="\n".join(f"{failure.subject}: {failure.reason}: {failure.message}" for failure in status.failures),
            resolution=f"Resume the plan with `upgrader resume {name}`, or roll it back with `upgrader rollback`.",
        )
    return BlockedError(
        f"plan {name} requires another approval",
        details=status.message,
        resolution=f"Review and approve the rest with `upgrader approve {name}`.",
    )


def changed_lines(before: Progress | None, after: Progress) -> list[str]:
    """Changes since the last poll, as lines."""
    lines = []
    plan = after.plan.status
    if before is None or (before.plan.status.phase, before.plan.status.message) != (plan.phase, plan.message):
        lines.append(_format_line(f"plan {after.plan.metadata.name}", plan.phase.value, plan.message))
    known = _known_states(before) if before is not None else {}
    for upgrade in after.upgrades:
        if known.get(upgrade.metadata.uid) != _shown_state(upgrade):
            back = " (reverting)" if upgrade.status.reverting and not is_final(upgrade.status.phase) else ""
            lines.append(
                _format_line(
                    f"node {upgrade.spec.node.name}", f"{upgrade.status.phase.value}{back}", _reason_text(upgrade)
                )
            )
    lines += [
        _format_line(f"gang {request.spec.gang}", request.status.phase.value, request.status.message)
        for request in after.requests
        if known.get(request.metadata.uid) != _shown_state(request)
    ]
    return lines


def _known_states(before: Progress) -> dict[str, tuple[str, ...]]:
    upgrades = {upgrade.metadata.uid: _shown_state(upgrade) for upgrade in before.upgrades}
    return upgrades | {request.metadata.uid: _shown_state(request) for request in before.requests}


def _shown_state(item: NodeUpgrade | CheckpointRequest) -> tuple[str, ...]:
    back = str(item.status.reverting) if isinstance(item, NodeUpgrade) else ""
    return (item.status.phase.value, item.status.message, back)


def _reason_text(upgrade: NodeUpgrade) -> str:
    return ": ".join(part for part in (upgrade.status.reason, upgrade.status.message) if part)


def _format_line(subject: str, phase: str, message: str) -> str:
    return f"{subject}: {phase}{f', {message}' if message else ''}"
