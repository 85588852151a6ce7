"""The state machine of an UpgradePlan: pure, from a view of the plan to a decision with its reason.

Only a started batch is stored; the rest is forecast again in each step. A plan that fails is still undone: its upgrades
end, its gangs are restarted, its taints and claims are removed (law 9).
"""

from datetime import timedelta

import msgspec

from upgrader.core import timing
from upgrader.core.model.phases import DesiredState, NodePhase, OnFailure, PlanPhase, is_final
from upgrader.core.upgrade_plan.plan_precedence import UNDER_WAY, Rival, goes_first
from upgrader.core.upgrade_plan.plan_state import (
    QUIET,
    RETRIED_LATER,
    NextBatch,
    PlanDecision,
    PlanView,
    RequestSummary,
    Trouble,
    UpgradeFacts,
    is_quiet,
    plan_failures,
    settled_nodes,
    still_stopped,
    waits_for_stopped,
)

__all__ = [
    "QUIET",
    "RETRIED_LATER",
    "UNDER_WAY",
    "NextBatch",
    "PlanDecision",
    "PlanView",
    "RequestSummary",
    "Rival",
    "Trouble",
    "UpgradeFacts",
    "decide",
    "goes_first",
    "is_quiet",
    "plan_failures",
    "settled_nodes",
]

ROLLED_BACK = "RolledBack"
"""Why a plan is aborted that rolls back by itself: a plan to the revision before follows."""

CANARY_FAILED = "CanaryFailed"
TOO_MANY_FAILURES = "TooManyFailures"
LIMITS_EXCEEDED = "LimitsExceeded"
DEADLINE_PASSED = "DeadlinePassed"

_P = PlanPhase


def decide(view: PlanView) -> PlanDecision:
    """The next step of a plan; in doubt (an unsynced cache) it starts nothing."""
    failures = plan_failures(view)
    decision = _decide_phase(view, failures)
    left = still_stopped(view) if decision.phase in {_P.FAILED, _P.ABORTED} else ()
    return msgspec.structs.replace(decision, failures=(*failures, *_unwell_canaries(view), *left))


def _decide_phase(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    if is_final(view.phase):
        return PlanDecision(phase=view.phase, message="", reason=view.reason)
    aborting = is_aborted(view.state, deleted=view.deleted, stack_present=view.stack_present)
    match view.phase:
        case _P.PROPOSED:
            return _decide_proposed(view, aborting=aborting)
        case _P.ABORTING:
            return _decide_aborting(view)
        case _P.RUNNING | _P.PAUSED:
            if aborting:
                why = "the plan is being deleted" if view.deleted else "aborted by a user"
                return _undo_plan(f"{why}; reverting started batches", "Aborted")
            return _decide_running(view, failures)
        case _P.COMPLETED | _P.ABORTED | _P.SUPERSEDED | _P.FAILED:
            return PlanDecision(phase=view.phase, message="", reason=view.reason)


def is_aborted(state: DesiredState, *, deleted: bool, stack_present: bool) -> bool:
    """Whether a plan that is in progress is to be undone, because a user requests it or its stack was deleted."""
    return deleted or state in {DesiredState.ABORTED, DesiredState.ROLLED_BACK} or not stack_present


def _undo_plan(message: str, reason: str) -> PlanDecision:
    return PlanDecision(phase=_P.ABORTING, message=message, reason=reason, undo=True)


def _keep_phase(view: PlanView, reason: str, message: str) -> PlanDecision:
    return PlanDecision(phase=view.phase, reason=reason, message=message)


def _pause_plan(reason: str, message: str) -> PlanDecision:
    return PlanDecision(phase=_P.PAUSED, reason=reason, message=message)


def _run_plan(reason: str, message: str) -> PlanDecision:
    return PlanDecision(phase=_P.RUNNING, reason=reason, message=message)


def _decide_aborting(view: PlanView) -> PlanDecision:
    if not is_quiet(view):
        return _undo_plan("reverting started batches", view.reason)
    if waits_for_stopped(view):
        return _undo_plan(_explain_restarts(view), view.reason)
    if view.stopped:
        message = f"aborted; still stopped: {', '.join(view.stopped)}, see the condition StoppedOwners of the stack"
        return PlanDecision(phase=_P.ABORTED, message=message, reason=view.reason, end_batch=True)
    back = "; a rollback plan leads upgraded nodes back to their former revision" if view.reason == ROLLED_BACK else ""
    message = f"aborted; no gang is stopped, no node is claimed{back}"
    return PlanDecision(phase=_P.ABORTED, message=message, reason=view.reason, end_batch=True)


def _explain_restarts(view: PlanView) -> str:
    return f"waiting until the stack has restarted {', '.join(view.stopped)}; see its condition StoppedOwners"


def _decide_proposed(view: PlanView, *, aborting: bool) -> PlanDecision:
    if aborting:
        return PlanDecision(
            phase=_P.ABORTED, reason="Aborted", message="aborted before it started; nothing was changed"
        )
    if view.on_drift and not view.approved and view.synced and _nothing_left(view):
        return PlanDecision(phase=_P.SUPERSEDED, reason="NoDrift", message="no node differs from the revision")
    if view.on_drift and view.stack_revision not in {None, view.target_revision}:
        message = "the stack was changed; it creates another plan"
        return PlanDecision(phase=_P.SUPERSEDED, reason="StackChanged", message=message)
    if not view.approved:
        return _keep_phase(view, "NotApproved", "waiting for approval (upgrader approve)")
    if view.first is not None:
        return _keep_phase(view, "AnotherPlan", f"waiting for plan {view.first} of the same stack")
    if view.state is DesiredState.PAUSED:
        return _keep_phase(view, "PausedByPerson", "approved, and paused by a user (upgrader resume)")
    if not view.synced:
        return _wait_for_sync(view)
    return _run_plan("Started", "started")


def _nothing_left(view: PlanView) -> bool:
    return view.next_batch is None and not view.waiting + view.waiting_for_completion + view.installs


def _decide_running(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    if view.open_batch is not None:
        return _decide_open_batch(view, view.open_batch, failures)
    if not is_quiet(view):
        return _keep_phase(view, "TakingBack", "removing objects that no batch of this plan covers")
    # `upgrader apply` writes the plan first and then the stack: a stack at the plan's own target does not supersede it.
    if view.stack_revision not in {view.started_stack_revision, view.target_revision}:
        return PlanDecision(
            phase=_P.SUPERSEDED, reason="StackChanged", message="the stack was changed; create another plan"
        )
    late, failed = _fail_at_deadline(view), _blocking_failure(view, failures)
    if view.state is DesiredState.PAUSED:
        return late or _pause_plan("PausedByPerson", "paused by a user (upgrader resume)")
    if failed is not None and view.on_failure is OnFailure.ROLLBACK:
        return _undo_plan(f"{failed[1]}; rolling back to the previous revision", ROLLED_BACK)
    if late is not None:
        return late
    if failed is not None:
        reason, why = failed
        return _pause_plan(reason, f"paused: {why} (upgrader resume continues, upgrader rollback rolls back)")
    if view.first is not None:
        return _keep_phase(view, "AnotherPlan", f"no batch is started while plan {view.first} is in progress")
    if not view.synced:
        return _wait_for_sync(view)
    if _is_soaking(view) and not (view.next_batch is not None and view.next_batch.canary):
        until = timing.format_time(view.canaries.soak_until or view.now)
        return _run_plan("Soaking", f"canaries are upgraded and watched until {until}")
    return _decide_next_batch(view, failures)


def _decide_open_batch(view: PlanView, number: int, failures: tuple[Trouble, ...]) -> PlanDecision:
    if not view.created or not is_quiet(view):
        doing = f"batch {number} is in progress"
        if view.state is DesiredState.PAUSED:
            return _pause_plan("PausedByPerson", f"paused by a user; {doing} and will end")
        return _run_plan("BatchUnderWay", doing)
    soak = None
    # Canaries of several classes may need several batches: each soaks as long, so that the last of them counts.
    if number in view.canaries.batches and _has_upgraded(view, number) and not _canary_failures(view, failures):
        soak = view.now + timedelta(seconds=view.canaries.soak_seconds)
    return PlanDecision(
        phase=view.phase,
        reason="BatchEnded",
        message=f"batch {number} has ended",
        end_batch=True,
        soak_until=soak,
    )


def _has_upgraded(view: PlanView, number: int) -> bool:
    """Whether a batch upgraded any node: canaries that were released early prove nothing; other canaries are next."""
    return any(upgrade.batch == number and upgrade.phase is NodePhase.SUCCEEDED for upgrade in view.upgrades)


def _is_soaking(view: PlanView) -> bool:
    until = view.canaries.soak_until
    return view.canaries.enabled and until is not None and view.now < until


def _unwell_canaries(view: PlanView) -> tuple[Trouble, ...]:
    """Canaries that became unhealthy after their release, until the soak ends."""
    return view.canaries.unwell if _is_soaking(view) else ()


def _canary_failures(view: PlanView, failures: tuple[Trouble, ...]) -> tuple[Trouble, ...]:
    canaries = {upgrade.node for upgrade in view.upgrades if upgrade.batch in view.canaries.batches}
    canaries |= {request.gang for request in view.requests if request.batch in view.canaries.batches}
    return tuple(failure for failure in failures if failure.subject in canaries)


def _blocking_failure(view: PlanView, failures: tuple[Trouble, ...]) -> tuple[str, str] | None:
    """Why no further batch starts: failed canaries always count, until a user resumes the plan without them."""
    if view.canaries.enabled:
        bad = (*_canary_failures(view, failures), *_unwell_canaries(view))
        if bad:
            return CANARY_FAILED, f"a canary failed: {_summarize_failures(bad)}"
        if view.phase is _P.PAUSED and view.reason == CANARY_FAILED:
            return CANARY_FAILED, "a canary failed and is healthy again"
    if len(failures) > view.tolerated_failures:
        return TOO_MANY_FAILURES, _summarize_failures(failures)
    return None


def _fail_at_deadline(view: PlanView) -> PlanDecision | None:
    """Fail a plan whose deadline has passed with nodes left; its batches have ended by now."""
    if view.deadline is None or view.now < view.deadline or not view.synced:
        return None
    left = view.waiting + view.waiting_for_completion + view.installs
    if not left and view.next_batch is None:
        return None
    return PlanDecision(
        phase=_P.FAILED,
        reason=DEADLINE_PASSED,
        message=f"the deadline passed at {timing.format_time(view.deadline)}; the remaining nodes are not upgraded",
    )


def _summarize_failures(failures: tuple[Trouble, ...]) -> str:
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"{failures[0].subject}: {failures[0].message}{more}"


def _wait_for_sync(view: PlanView) -> PlanDecision:
    if view.problem:
        return _keep_phase(view, "NoForecast", view.problem)
    if not view.revision_known:
        return _keep_phase(
            view,
            "NoRevision",
            f"waiting for revision {view.target_revision} of the stack; see the stack's condition Valid",
        )
    return _keep_phase(view, "NotSynced", "waiting until the node cache is in sync with the API server")


def _decide_next_batch(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    batch = view.next_batch
    if batch is not None:
        number = view.batches + 1
        if (left := _exceeded_limits(view, batch)) is not None:
            return _pause_plan(LIMITS_EXCEEDED, left)
        if batch.starts_at is not None and view.now < batch.starts_at:
            why = f": {batch.waits_for}" if batch.waits_for else ""
            return _run_plan("Waiting", f"batch {number} starts at {timing.format_time(batch.starts_at)}{why}")
        return PlanDecision(
            phase=_P.RUNNING, reason="BatchStarted", message=f"starting batch {number}", start_batch=True
        )
    if view.waiting or view.installs or view.waiting_for_completion:
        return _run_plan("Blocked", _explain_waiting(view))
    if waits_for_stopped(view):
        return _run_plan("OwnersStopped", _explain_restarts(view))
    if failures or view.stopped:
        message = f"ended with {len(failures) + len(view.stopped)} failure(s), see status.failures"
        return PlanDecision(phase=_P.FAILED, reason="Failures", message=message)
    return PlanDecision(phase=_P.COMPLETED, reason="Done", message="every node is on the target revision")


def _exceeded_limits(view: PlanView, batch: NextBatch) -> str | None:
    """Why the next batch would exceed the limits of the approval."""
    done = view.interrupted
    if done + batch.interruptions > view.max_interruptions:
        return (
            f"the next batch would stop {batch.interruptions} gang(s), {done} were stopped before, and the approval "
            f"allows {view.max_interruptions} (raise it with `upgrader approve`)"
        )
    losses = view.losses
    if losses.approved is not None and losses.actual + losses.expected > losses.approved:
        return (
            f"{losses.actual:.1f} GPU-hours were lost, the rest is expected to lose {losses.expected:.1f}, and the "
            f"approval allows {losses.approved:.1f} (raise it with `upgrader approve`)"
        )
    return None


def _explain_waiting(view: PlanView) -> str:
    blocked = f"{view.waiting} node(s) are blocked, see status.blockers" if view.waiting else ""
    bare = f"{view.installs} node(s) are installed by the stack, see its condition Installed" if view.installs else ""
    ripe = (
        f"{view.waiting_for_completion} node(s) are upgraded when their jobs have ended"
        if view.waiting_for_completion
        else ""
    )
    return "; ".join(part for part in (blocked, bare, ripe) if part)
