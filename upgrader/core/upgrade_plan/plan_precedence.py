"""Several plans of one stack: which of them goes first, so that one stack is never changed by two."""

from collections.abc import Iterable

from msgspec import Struct

from upgrader.core.model.phases import DesiredState, PlanPhase


class Rival(Struct, frozen=True, kw_only=True):
    """Another plan of the same stack, or this one among them."""

    name: str
    made_at: str  # creationTimestamp
    phase: PlanPhase
    approved: bool = False
    startable: bool = True  # its revision is there; one that can never start must keep nobody waiting
    state: DesiredState = DesiredState.RUNNING
    busy: bool = False  # has a batch that was started and has not ended


UNDER_WAY = frozenset({PlanPhase.RUNNING, PlanPhase.PAUSED, PlanPhase.ABORTING})


def goes_first(mine: Rival, others: Iterable[Rival]) -> str | None:
    """The plan that keeps this one from starting anything, so that one stack is never changed by two.

    Loops of plans run beside each other: each sees the others as they were a moment ago. Therefore a total order (the
    older first) among those that could start, and among those that both did; and whoever has a batch keeps it.
    """
    for one in sorted(others, key=_age):
        waiting = (
            one.phase is PlanPhase.PROPOSED and one.approved and one.startable and one.state is DesiredState.RUNNING
        )
        if mine.phase is PlanPhase.PROPOSED:
            blocks = one.phase in UNDER_WAY or (waiting and _age(one) < _age(mine))
        else:
            blocks = one.phase in UNDER_WAY and (one.busy or _age(one) < _age(mine))
        if blocks:
            return one.name
    return None


def _age(plan: Rival) -> tuple[str, str]:
    return plan.made_at, plan.name
