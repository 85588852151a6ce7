"""Precedence of plans of one stack, so that two plans never change a stack at the same time."""

from collections.abc import Iterable

from msgspec import Struct

from upgrader.core.model.phases import DesiredState, PlanPhase


class Rival(Struct, frozen=True, kw_only=True):
    """A plan of the stack, in the order of precedence."""

    name: str
    made_at: str  # creationTimestamp
    phase: PlanPhase
    approved: bool = False
    startable: bool = True  # its revision exists; a plan that can never start must not block other plans
    state: DesiredState = DesiredState.RUNNING
    busy: bool = False  # has a batch that was started and has not ended


UNDER_WAY = frozenset({PlanPhase.RUNNING, PlanPhase.PAUSED, PlanPhase.ABORTING})


def goes_first(mine: Rival, others: Iterable[Rival]) -> str | None:
    """The plan that keeps this plan from starting a batch, so that two plans never change a stack at the same time.

    Loops of plans run concurrently: each sees the others as they were a moment ago. Therefore there is a total order
    (the older first) among plans that could start, and among plans that have started; a plan with a batch keeps it.
    """
    for plan in sorted(others, key=_age_order):
        ready = plan.approved and plan.startable and plan.state is DesiredState.RUNNING
        waiting = plan.phase is PlanPhase.PROPOSED and ready
        if mine.phase is PlanPhase.PROPOSED:
            blocks = plan.phase in UNDER_WAY or (waiting and _age_order(plan) < _age_order(mine))
        else:
            blocks = plan.phase in UNDER_WAY and (plan.busy or _age_order(plan) < _age_order(mine))
        if blocks:
            return plan.name
    return None


def _age_order(plan: Rival) -> tuple[str, str]:
    return plan.made_at, plan.name
