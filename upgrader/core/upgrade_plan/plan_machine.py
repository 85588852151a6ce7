"""What happens next to a plan: pure, from what was read to a decision with its reason.

Only a started batch is stored; the rest is forecast again each time. A plan that ends badly still passes through its
undoing: its upgrades end, its gangs are restarted, its marks go (law 9).
"""

from datetime import timedelta

import msgspec

from upgrader.core import timing
from upgrader.core.model.phases import DesiredState, NodePhase, OnFailure, PlanPhase, ends
from upgrader.core.upgrade_plan.plan_precedence import UNDER_WAY, Rival, goes_first
from upgrader.core.upgrade_plan.plan_state import (
    LET_GO,
    QUIET,
    NextBatch,
    PlanDecision,
    PlanView,
    RequestSummary,
    Trouble,
    UpgradeFacts,
    quiet,
    settled_nodes,
    still_stopped,
    troubles,
    waits_for_stopped,
)

__all__ = [
    "LET_GO",
    "QUIET",
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
    "quiet",
    "settled_nodes",
    "troubles",
]

ROLLED_BACK = "RolledBack"
"""Why a plan is aborted that goes back by itself: a plan to the revision before follows."""

CANARY_FAILED = "CanaryFailed"
TOO_MANY_FAILURES = "TooManyFailures"
LIMITS_EXCEEDED = "LimitsExceeded"
DEADLINE_PASSED = "DeadlinePassed"

_P = PlanPhase


def decide(view: PlanView) -> PlanDecision:
    """The next step of a plan; doubt (an unsynced cache) starts nothing."""
    failures = troubles(view)
    decision = _decide(view, failures)
    left = still_stopped(view) if decision.phase in {_P.FAILED, _P.ABORTED} else ()
    return msgspec.structs.replace(decision, failures=(*failures, *_unwell(view), *left))


def _decide(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    if ends(view.phase):
        return PlanDecision(phase=view.phase, message="", reason=view.reason)
    aborting = aborted(view.state, deleted=view.deleted, stack_present=view.stack_present)
    match view.phase:
        case _P.PROPOSED:
            return _proposed(view, aborting=aborting)
        case _P.ABORTING:
            return _aborting(view)
        case _P.RUNNING | _P.PAUSED:
            if aborting:
                why = "the plan is being deleted" if view.deleted else "aborted by a person"
                return _undo(f"{why}; taking back what was started", "Aborted")
            return _running(view, failures)
        case _P.COMPLETED | _P.ABORTED | _P.SUPERSEDED | _P.FAILED:
            return PlanDecision(phase=view.phase, message="", reason=view.reason)


def aborted(state: DesiredState, *, deleted: bool, stack_present: bool) -> bool:
    """Whether a plan that is under way is to be taken back, by a person's wish or since its stack is gone."""
    return deleted or state in {DesiredState.ABORTED, DesiredState.ROLLED_BACK} or not stack_present


def _undo(message: str, reason: str) -> PlanDecision:
    return PlanDecision(phase=_P.ABORTING, message=message, reason=reason, undo=True)


def _stay(view: PlanView, reason: str, message: str) -> PlanDecision:
    return PlanDecision(phase=view.phase, reason=reason, message=message)


def _pause(reason: str, message: str) -> PlanDecision:
    return PlanDecision(phase=_P.PAUSED, reason=reason, message=message)


def _run(reason: str, message: str) -> PlanDecision:
    return PlanDecision(phase=_P.RUNNING, reason=reason, message=message)


def _aborting(view: PlanView) -> PlanDecision:
    if not quiet(view):
        return _undo("taking back what was started", view.reason)
    if waits_for_stopped(view):
        return _undo(_restarts(view), view.reason)
    if view.stopped:
        message = f"aborted; still stopped: {', '.join(view.stopped)}, see the condition StoppedOwners of the stack"
        return PlanDecision(phase=_P.ABORTED, message=message, reason=view.reason, end_batch=True)
    back = "; its nodes are repaired by a plan of their own" if view.reason == ROLLED_BACK else ""
    message = f"aborted; nothing is stopped or marked{back}"
    return PlanDecision(phase=_P.ABORTED, message=message, reason=view.reason, end_batch=True)


def _restarts(view: PlanView) -> str:
    return f"waiting until the stack has restarted {', '.join(view.stopped)}; see its condition StoppedOwners"


def _proposed(view: PlanView, *, aborting: bool) -> PlanDecision:
    if aborting:
        return PlanDecision(
            phase=_P.ABORTED, reason="Aborted", message="aborted before it started; nothing was touched"
        )
    if view.on_drift and not view.approved and view.synced and _nothing_left(view):
        return PlanDecision(phase=_P.SUPERSEDED, reason="NoDrift", message="no node differs any more")
    if view.on_drift and view.stack_revision not in {None, view.target_revision}:
        message = "the stack was changed; it makes another plan"
        return PlanDecision(phase=_P.SUPERSEDED, reason="StackChanged", message=message)
    if not view.approved:
        return _stay(view, "NotApproved", "waiting for approval (upgrader approve)")
    if view.first is not None:
        return _stay(view, "AnotherPlan", f"waiting for plan {view.first} of the same stack")
    if view.state is DesiredState.PAUSED:
        return _stay(view, "PausedByPerson", "approved, and paused by a person")
    if not view.synced:
        return _unsynced(view)
    return _run("Started", "started")


def _nothing_left(view: PlanView) -> bool:
    return view.next_batch is None and not view.waiting + view.waiting_for_completion + view.installs


def _running(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    if view.open_batch is not None:
        return _under_way(view, view.open_batch, failures)
    if not quiet(view):
        return _stay(view, "TakingBack", "taking back what no batch of this plan covers")
    # `upgrader apply` writes the plan first and then the stack: arriving at the plan's own target is no other wish.
    if view.stack_revision not in {view.started_stack_revision, view.target_revision}:
        return PlanDecision(
            phase=_P.SUPERSEDED, reason="StackChanged", message="the stack was changed; make another plan"
        )
    late, failed = _late(view), _failed(view, failures)
    if view.state is DesiredState.PAUSED:
        return late or _pause("PausedByPerson", "paused by a person (upgrader resume)")
    if failed is not None and view.on_failure is OnFailure.ROLLBACK:
        return _undo(f"{failed[1]}; going back to the revision before", ROLLED_BACK)
    if late is not None:
        return late
    if failed is not None:
        reason, why = failed
        return _pause(reason, f"paused: {why} (upgrader resume goes on, upgrader rollback goes back)")
    if view.first is not None:
        return _stay(view, "AnotherPlan", f"no batch is started while plan {view.first} is under way")
    if not view.synced:
        return _unsynced(view)
    if _soaking(view) and not (view.next_batch is not None and view.next_batch.canary):
        until = timing.show(view.canaries.soak_until or view.now)
        return _run("Soaking", f"canaries are upgraded and watched until {until}")
    return _next(view, failures)


def _under_way(view: PlanView, number: int, failures: tuple[Trouble, ...]) -> PlanDecision:
    if not view.created or not quiet(view):
        doing = f"batch {number} is under way"
        if view.state is DesiredState.PAUSED:
            return _pause("PausedByPerson", f"paused by a person; {doing} and will end")
        return _run("BatchUnderWay", doing)
    soak = None
    # Canaries of several classes may need several batches: each is watched as long, so the last of them counts.
    if number in view.canaries.batches and _upgraded(view, number) and not _of_canaries(view, failures):
        soak = view.now + timedelta(seconds=view.canaries.soak_seconds)
    return PlanDecision(
        phase=view.phase,
        reason="BatchEnded",
        message=f"batch {number} has ended",
        end_batch=True,
        soak_until=soak,
    )


def _upgraded(view: PlanView, number: int) -> bool:
    """Whether a batch upgraded anything: canaries that were let go have proved nothing, and others come first then."""
    return any(one.batch == number and one.phase is NodePhase.SUCCEEDED for one in view.upgrades)


def _soaking(view: PlanView) -> bool:
    until = view.canaries.soak_until
    return view.canaries.enabled and until is not None and view.now < until


def _unwell(view: PlanView) -> tuple[Trouble, ...]:
    """Canaries that went bad after they were given back; later that is an ordinary node's trouble."""
    return view.canaries.unwell if _soaking(view) else ()


def _of_canaries(view: PlanView, failures: tuple[Trouble, ...]) -> tuple[Trouble, ...]:
    ours = {one.node for one in view.upgrades if one.batch in view.canaries.batches}
    ours |= {one.gang for one in view.requests if one.batch in view.canaries.batches}
    return tuple(one for one in failures if one.subject in ours)


def _failed(view: PlanView, failures: tuple[Trouble, ...]) -> tuple[str, str] | None:
    """Why nothing further is started: canaries count whatever is tolerated, until a person goes on without them."""
    if view.canaries.enabled:
        bad = (*_of_canaries(view, failures), *_unwell(view))
        if bad:
            return CANARY_FAILED, f"a canary failed: {_brief(bad)}"
        if view.phase is _P.PAUSED and view.reason == CANARY_FAILED:
            return CANARY_FAILED, "a canary failed, and is well again now"
    if len(failures) > view.tolerated_failures:
        return TOO_MANY_FAILURES, _brief(failures)
    return None


def _late(view: PlanView) -> PlanDecision | None:
    """The plan's deadline has passed and something is left; what was started has ended by now."""
    if view.deadline is None or view.now < view.deadline or not view.synced:
        return None
    left = view.waiting + view.waiting_for_completion + view.installs
    if not left and view.next_batch is None:
        return None
    return PlanDecision(
        phase=_P.FAILED,
        reason=DEADLINE_PASSED,
        message=f"the deadline passed at {timing.show(view.deadline)}; what is left stays as it is",
    )


def _brief(failures: tuple[Trouble, ...]) -> str:
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"{failures[0].subject}: {failures[0].message}{more}"


def _unsynced(view: PlanView) -> PlanDecision:
    if view.problem:
        return _stay(view, "NoForecast", view.problem)
    if not view.revision_known:
        return _stay(
            view,
            "NoRevision",
            f"waiting for revision {view.target_revision} of the stack; see the stack's condition Valid",
        )
    return _stay(view, "NotSynced", "waiting for the node cache")


def _next(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    batch = view.next_batch
    if batch is not None:
        number = view.batches + 1
        if (left := _outside(view, batch)) is not None:
            return _pause(LIMITS_EXCEEDED, left)
        if batch.starts_at is not None and view.now < batch.starts_at:
            why = f": {batch.waits_for}" if batch.waits_for else ""
            return _run("Waiting", f"batch {number} starts at {timing.show(batch.starts_at)}{why}")
        return PlanDecision(
            phase=_P.RUNNING, reason="BatchStarted", message=f"starting batch {number}", start_batch=True
        )
    if view.waiting or view.installs or view.waiting_for_completion:
        return _run("Blocked", _waits(view))
    if waits_for_stopped(view):
        return _run("OwnersStopped", _restarts(view))
    if failures or view.stopped:
        message = f"ended with {len(failures) + len(view.stopped)} failure(s), see them in the status"
        return PlanDecision(phase=_P.FAILED, reason="Failures", message=message)
    return PlanDecision(phase=_P.COMPLETED, reason="Done", message="every node is on the target revision")


def _outside(view: PlanView, batch: NextBatch) -> str | None:
    """Why the next batch would leave what was approved."""
    done = view.interrupted
    if done + batch.interruptions > view.max_interruptions:
        return (
            f"the next batch would stop {batch.interruptions} gang(s), {done} were stopped and "
            f"{view.max_interruptions} approved (upgrader approve)"
        )
    losses = view.losses
    if losses.approved is not None and losses.actual + losses.expected > losses.approved:
        return (
            f"{losses.actual:.1f} GPU-hours were lost, {losses.expected:.1f} are expected for the rest and "
            f"{losses.approved:.1f} approved (upgrader approve)"
        )
    return None


def _waits(view: PlanView) -> str:
    blocked = f"{view.waiting} node(s) are blocked, see the blockers" if view.waiting else ""
    bare = f"{view.installs} node(s) are installed by the stack, see its condition Installed" if view.installs else ""
    ripe = (
        f"{view.waiting_for_completion} node(s) are taken when their jobs end by themselves"
        if view.waiting_for_completion
        else ""
    )
    return "; ".join(part for part in (blocked, bare, ripe) if part)
