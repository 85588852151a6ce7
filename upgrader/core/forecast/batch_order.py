"""The order of batches: canaries and their soak, then idle nodes, then gangs that are requested to checkpoint."""

from collections.abc import Sequence

from upgrader.core.constraints.batch import BatchForecast, BatchKind
from upgrader.core.constraints.blockers import Blocker
from upgrader.core.constraints.group_blockers import too_late
from upgrader.core.forecast.bin_packing import Before, Unit, best_course, in_turn, score_batches
from upgrader.core.forecast.canaries import choose_canaries, unit_classes
from upgrader.core.forecast.context import Frame
from upgrader.core.forecast.schedule import Course, FreeNodes, Leg, Timeline
from upgrader.core.model.prediction import Completion
from upgrader.core.timing import format_time


def legs_of(free: Sequence[Unit], remainder: Sequence[BatchForecast], frame: Frame) -> list[Leg]:
    """All groups without a blocker, in batches and in order.

    Idle nodes have batches of their own: a driver that fails shows before any gang is stopped for it, and upgraded
    nodes take the gangs that restart. A class whose canary waits for the end of a time slice delays no other class.
    """
    strategy, nodes = frame.world.strategy, frame.world.nodes
    before = [[group.nodes for group in batch.groups] for batch in remainder]
    first = choose_canaries(free, nodes, strategy.proven) if strategy.canary else []
    chosen = {unit.group.name for unit in first}
    rest = [unit for unit in free if unit.group.name not in chosen]
    now = [unit for unit in first if not unit.release]
    seen = frozenset(strategy.proven).union(*(unit_classes(unit, nodes) for unit in now))
    waiting = frozenset().union(*(unit_classes(unit, nodes) for unit in first)) - seen
    blocked = [unit for unit in rest if unit_classes(unit, nodes) & waiting]
    free_now = [unit for unit in rest if not unit_classes(unit, nodes) & waiting]
    legs, end = _plan_round(now, free_now, before, 0, frame)
    late, _ = _plan_round([unit for unit in first if unit.release], blocked, before, end, frame)
    return legs + late


def _plan_round(
    first: Sequence[Unit], rest: Sequence[Unit], before: Before, begin: int, frame: Frame
) -> tuple[list[Leg], int]:
    """Canaries, and after their soak the groups that wait for no other canary; with the second at which all end."""
    strategy, rules = frame.world.strategy, frame.rules
    watched = in_turn(first, rules, begin)  # an idle canary that fails has stopped no gang
    begin = score_batches(watched, rules, begin).end + (strategy.soak_seconds if watched else 0)
    if rest:
        begin = max(begin, frame.seconds_until(strategy.not_before))
    idle = best_course([unit for unit in rest if not _is_busy(unit)], before, rules, begin)
    begin = score_batches(idle, rules, begin).end
    asked = best_course([unit for unit in rest if _is_busy(unit)], before, rules, begin)
    parts = ((BatchKind.CANARY, watched), (BatchKind.IDLE, idle), (BatchKind.ASKED, asked))
    legs = [Leg(kind=kind, batch=batch) for kind, batches in parts for batch in batches]
    return legs, score_batches(asked, rules, begin).end


def course_of(frame: Frame) -> Course:
    """The strategy's settings for the time from the first batch to the last."""
    strategy = frame.world.strategy
    slices = {
        gang.name: frame.seconds_until(gang.earliest_stop) for gang in frame.world.gangs.values() if gang.earliest_stop
    }
    return Course(
        rules=frame.rules,
        pace=frame.pace,
        begin=frame.seconds_until(strategy.not_before),
        soak=strategy.soak_seconds,
        latest=frame.seconds_until(strategy.deadline) if strategy.deadline is not None else None,
        slices={name: end for name, end in slices.items() if end},
    )


def free_nodes(completions: Sequence[Completion], frame: Frame) -> list[FreeNodes]:
    """The completions in the form that the timeline takes."""
    sizes = frame.limits.pool.sizes
    return [
        FreeNodes(
            at=frame.seconds_until(completion.at),
            nodes=len(completion.nodes),
            gpus=sum(sizes[node] for node in completion.nodes),
        )
        for completion in completions
    ]


def batches_of(line: Timeline, frame: Frame) -> tuple[BatchForecast, ...]:
    """The batches in the form that the forecast shows."""
    return tuple(
        BatchForecast(
            number=number,
            groups=tuple(unit.group for unit in leg.batch.units),
            kind=leg.kind,
            starts_at=frame.time_at(leg.start),
            seconds=round(leg.batch.spread.mean),
            waits_for=_waits_for(leg, frame, first=number == 1),
        )
        for number, leg in enumerate(line.legs, start=1)
    )


def late_blockers(line: Timeline, frame: Frame) -> list[Blocker]:
    """Groups of batches that would end after the deadline."""
    deadline = frame.world.strategy.deadline
    if deadline is None:
        return []
    return [
        too_late(unit.group, deadline, frame.time_at(leg.start + round(leg.batch.spread.quantile(0.95))))
        for leg in line.late
        for unit in leg.batch.units
    ]


def _is_busy(unit: Unit) -> bool:
    return bool(unit.group.gangs or unit.group.evicted)


def _waits_for(leg: Leg, frame: Frame, *, first: bool) -> str:
    soak = frame.world.strategy.not_before
    reasons = []
    if leg.soaked or (first and leg.kind is not BatchKind.CANARY and frame.seconds_until(soak)):
        reasons.append("It waits until the soak of the canaries ends.")
    if leg.slices:
        more = f" and {len(leg.slices) - 1} more" if len(leg.slices) > 1 else ""
        reasons.append(f"It waits for the end of the time slice that {leg.slices[0]}{more} declared.")
    if leg.window:
        reasons.append(f"It waits for a window, which opens {format_time(frame.time_at(leg.start))}.")
    return " ".join(reasons)
