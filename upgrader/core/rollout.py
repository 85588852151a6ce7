"""What happens next to a plan: pure, from what was read to a decision with its reason.

Only a started batch is stored; the rest is forecast again each time. A plan that ends badly still passes through its
undoing: its visits end, its gangs are restarted, its marks go (law 9).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.phases import NodePhase, PlanPhase, RequestPhase, Run, ends

LET_GO = frozenset(
    {"NotAcknowledged", "SiblingFailed", "NewGpuPod", "AcknowledgementLost", "NotClosed", "NotDrained", "NotPrepared"}
)
"""Failures after which the node runs what it ran before and its gang trained on: they are tried again later."""

QUIET = frozenset(
    {"NotAcknowledged", "SiblingFailed", "NewGpuPod", "AcknowledgementLost", "Aborted", "SiblingReverted"}
)
"""Failures that stop nobody's rollout: a workload said no, or the failure is counted at a sibling."""


class VisitFacts(Struct, frozen=True, kw_only=True):
    """A NodeUpgrade of the plan."""

    name: str
    node: str
    batch: int
    phase: NodePhase
    failure: str = ""
    message: str = ""
    ended_at: datetime | None = None


class TalkFacts(Struct, frozen=True, kw_only=True):
    """A CheckpointRequest of the plan."""

    name: str
    gang: str
    batch: int
    phase: RequestPhase
    reason: str = ""
    message: str = ""
    stopped: bool = False
    late: bool = False  # restarted since its visits took too long


class Trouble(Struct, frozen=True, kw_only=True):
    """A failure as the plan's status shows it."""

    subject: str
    reason: str
    message: str


class PlanView(Struct, frozen=True, kw_only=True):
    """A plan with everything that its next step depends on."""

    name: str
    phase: PlanPhase
    run: Run
    deleted: bool
    approved: bool
    target_revision: str
    stack_present: bool
    stack_revision: str | None  # update revision of the stack now
    started_stack_revision: str | None  # and when the plan started
    first: str | None  # another plan of the stack that goes first: no batch is started meanwhile
    tolerated_failures: int
    max_interruptions: int
    batches: int
    open_batch: int | None  # number of the batch that has not been ended
    created: bool  # every visit of the open batch exists
    visits: tuple[VisitFacts, ...] = ()
    talks: tuple[TalkFacts, ...] = ()
    next_interruptions: int = 0  # gangs that the next batch would stop
    waiting: int = 0  # drifted nodes that the forecast holds, or that cool down
    installs: int = 0  # nodes without a driver, which the stack installs by itself
    next_batch: bool = False
    synced: bool = True
    revision_known: bool = True  # the target's ControllerRevision is written


class Rival(Struct, frozen=True, kw_only=True):
    """Another plan of the same stack, or this one among them."""

    name: str
    made_at: str  # creationTimestamp
    phase: PlanPhase
    approved: bool = False
    startable: bool = True  # its revision is there; one that can never start must keep nobody waiting
    run: Run = Run.GO
    busy: bool = False  # has a batch that was started and has not ended


UNDER_WAY = frozenset({PlanPhase.RUNNING, PlanPhase.PAUSED, PlanPhase.ABORTING})


def goes_first(mine: Rival, others: Iterable[Rival]) -> str | None:
    """The plan that keeps this one from starting anything, so that one stack is never changed by two.

    Loops of plans run beside each other: each sees the others as they were a moment ago. Therefore a total order (the
    older first) among those that could start, and among those that both did; and whoever has a batch keeps it.
    """
    for one in sorted(others, key=_age):
        waiting = one.phase is PlanPhase.PROPOSED and one.approved and one.startable and one.run is Run.GO
        if mine.phase is PlanPhase.PROPOSED:
            blocks = one.phase in UNDER_WAY or (waiting and _age(one) < _age(mine))
        else:
            blocks = one.phase in UNDER_WAY and (one.busy or _age(one) < _age(mine))
        if blocks:
            return one.name
    return None


def _age(plan: Rival) -> tuple[str, str]:
    return plan.made_at, plan.name


class PlanDecision(Struct, frozen=True, kw_only=True):
    """The record that is written, and what is done after it."""

    phase: PlanPhase
    message: str
    start_batch: bool = False
    end_batch: bool = False
    undo: bool = False  # its visits and conversations are taken back
    failures: tuple[Trouble, ...] = ()


_P = PlanPhase


def decide(view: PlanView) -> PlanDecision:
    """The next step of a plan; doubt (an unsynced cache) starts nothing."""
    failures = troubles(view)
    decision = _decide(view, failures)
    return PlanDecision(
        phase=decision.phase,
        message=decision.message,
        start_batch=decision.start_batch,
        end_batch=decision.end_batch,
        undo=decision.undo,
        failures=failures,
    )


def _decide(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    if ends(view.phase):
        return PlanDecision(phase=view.phase, message="")
    aborting = view.deleted or view.run in {Run.ABORT, Run.ABORT_AND_UNDO} or not view.stack_present
    match view.phase:
        case _P.PROPOSED:
            return _proposed(view, aborting=aborting)
        case _P.ABORTING:
            if quiet(view):
                return PlanDecision(phase=_P.ABORTED, message="aborted; nothing is stopped or marked", end_batch=True)
            return PlanDecision(phase=_P.ABORTING, message="taking back what was started", undo=True)
        case _P.RUNNING | _P.PAUSED:
            if aborting:
                why = "the plan is being deleted" if view.deleted else "aborted by a person"
                return PlanDecision(phase=_P.ABORTING, message=f"{why}; taking back what was started", undo=True)
            return _running(view, failures)
        case _P.COMPLETED | _P.ABORTED | _P.SUPERSEDED | _P.FAILED:
            return PlanDecision(phase=view.phase, message="")


def _proposed(view: PlanView, *, aborting: bool) -> PlanDecision:
    if aborting:
        return PlanDecision(phase=_P.ABORTED, message="aborted before it started; nothing was touched")
    if not view.approved:
        return PlanDecision(phase=_P.PROPOSED, message="waiting for approval (upgrader approve)")
    if view.first is not None:
        return PlanDecision(phase=_P.PROPOSED, message=f"waiting for plan {view.first} of the same stack")
    if view.run is Run.PAUSE:
        return PlanDecision(phase=_P.PROPOSED, message="approved, and paused by a person")
    if not view.synced:
        return PlanDecision(phase=_P.PROPOSED, message=_unsynced(view))
    return PlanDecision(phase=_P.RUNNING, message="started")


def _running(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    if view.open_batch is not None:
        if not view.created or not quiet(view):
            doing = f"batch {view.open_batch} is under way"
            paused = view.run is Run.PAUSE
            return PlanDecision(
                phase=_P.PAUSED if paused else _P.RUNNING,
                message=f"paused by a person; {doing} and will end" if paused else doing,
            )
        return PlanDecision(phase=view.phase, message=f"batch {view.open_batch} has ended", end_batch=True)
    # `upgrader apply` writes the plan first and then the stack: arriving at the plan's own target is no other wish.
    if view.stack_revision not in {view.started_stack_revision, view.target_revision}:
        return PlanDecision(phase=_P.SUPERSEDED, message="the stack was changed; make another plan")
    if view.run is Run.PAUSE:
        return PlanDecision(phase=_P.PAUSED, message="paused by a person (upgrader resume)")
    if len(failures) > view.tolerated_failures:
        return PlanDecision(
            phase=_P.PAUSED,
            message=f"paused: {_brief(failures)} (upgrader resume goes on, upgrader rollback goes back)",
        )
    if view.first is not None:
        return PlanDecision(phase=view.phase, message=f"no batch is started while plan {view.first} is under way")
    if not view.synced:
        return PlanDecision(phase=view.phase, message=_unsynced(view))
    return _next(view, failures)


def _brief(failures: tuple[Trouble, ...]) -> str:
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"{failures[0].subject}: {failures[0].message}{more}"


def _unsynced(view: PlanView) -> str:
    if not view.revision_known:
        return f"waiting for revision {view.target_revision} of the stack; see the stack's condition Valid"
    return "waiting for the node cache"


def _next(view: PlanView, failures: tuple[Trouble, ...]) -> PlanDecision:
    done = sum(one.stopped for one in view.talks)
    if view.next_batch and done + view.next_interruptions > view.max_interruptions:
        return PlanDecision(
            phase=_P.PAUSED,
            message=f"the next batch would stop {view.next_interruptions} gang(s), {done} were stopped and "
            f"{view.max_interruptions} approved (upgrader approve)",
        )
    if view.next_batch:
        return PlanDecision(phase=_P.RUNNING, message=f"starting batch {view.batches + 1}", start_batch=True)
    if view.waiting or view.installs:
        return PlanDecision(phase=_P.RUNNING, message=_waits(view))
    if failures:
        return PlanDecision(phase=_P.FAILED, message=f"ended with {len(failures)} failure(s), see them in the status")
    return PlanDecision(phase=_P.COMPLETED, message="every node is on the target revision")


def _waits(view: PlanView) -> str:
    held = f"{view.waiting} node(s) are held, see the holds" if view.waiting else ""
    bare = f"{view.installs} node(s) are installed by the stack, see its condition Installed" if view.installs else ""
    return "; ".join(part for part in (held, bare) if part)


def quiet(view: PlanView) -> bool:
    """Whether nothing of the plan is under way: no visit, and no gang that is asked, stopped or not yet seen again."""
    return all(ends(visit.phase) for visit in view.visits) and all(ends(talk.phase) for talk in view.talks)


def troubles(view: PlanView) -> tuple[Trouble, ...]:
    """What a person should look at: failed visits, and gangs that did not come back."""
    nodes = [
        Trouble(subject=visit.node, reason=visit.failure, message=visit.message)
        for visit in view.visits
        if visit.phase is NodePhase.FAILED and visit.failure not in QUIET
    ]
    gangs = [
        Trouble(subject=talk.gang, reason=talk.reason, message=talk.message)
        for talk in view.talks
        if talk.phase is RequestPhase.ENDED and talk.reason == "NotRestored"
    ]
    late = [
        Trouble(subject=talk.gang, reason="RestartByPassed", message="restarted before its visits were over")
        for talk in view.talks
        if talk.late
    ]
    return (*nodes, *gangs, *late)


def settled_nodes(
    visits: tuple[VisitFacts, ...], retry: timedelta, now: datetime
) -> tuple[frozenset[str], frozenset[str]]:
    """Nodes that this plan does not take again, and those that it leaves alone for a while.

    A node whose closure was let go is tried again after `retry`; one that failed in the visit is a person's.
    """
    latest = {visit.node: visit for visit in sorted(visits, key=lambda one: one.batch)}
    settled, cooling = set(), set()
    for node, visit in latest.items():
        if not ends(visit.phase) or visit.phase is NodePhase.GONE:
            continue
        # A node that was given back stays settled: the cache may still show it as it was before.
        if visit.phase is NodePhase.SUCCEEDED or visit.failure not in LET_GO:
            settled.add(node)
        elif visit.ended_at is not None and now < visit.ended_at + retry:
            cooling.add(node)
    return frozenset(settled), frozenset(cooling)
