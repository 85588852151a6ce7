"""The order of batches: canaries and their soak, then idle nodes, then gangs that are asked."""

from collections.abc import Sequence

from upgrader.core.constraints.batch import BatchForecast, BatchKind
from upgrader.core.constraints.blockers import Blocker
from upgrader.core.constraints.group_blockers import too_late
from upgrader.core.forecast.bin_packing import Before, Unit, course, in_turn, score
from upgrader.core.forecast.canaries import canaries, classes
from upgrader.core.forecast.context import Frame
from upgrader.core.forecast.schedule import Course, FreeNodes, Leg, Timeline
from upgrader.core.model.prediction import Completion
from upgrader.core.timing import show


def legs_of(free: Sequence[Unit], remainder: Sequence[BatchForecast], frame: Frame) -> list[Leg]:
    """All groups that nothing blocks, in batches and in order.

    Idle nodes come by themselves: a driver that fails is seen before any gang is stopped for it, and what is upgraded
    takes the gangs that restart. A class whose canary must wait for the end of a time slice keeps no other class.
    """
    strategy, nodes = frame.world.strategy, frame.world.nodes
    before = [[group.nodes for group in batch.groups] for batch in remainder]
    first = canaries(free, nodes, strategy.proven) if strategy.canary else []
    chosen = {unit.group.name for unit in first}
    rest = [unit for unit in free if unit.group.name not in chosen]
    now = [unit for unit in first if not unit.release]
    seen = frozenset(strategy.proven).union(*(classes(unit, nodes) for unit in now))
    waiting = frozenset().union(*(classes(unit, nodes) for unit in first)) - seen
    blocked = [unit for unit in rest if classes(unit, nodes) & waiting]
    free_now = [unit for unit in rest if not classes(unit, nodes) & waiting]
    legs, end = _round(now, free_now, before, 0, frame)
    late, _ = _round([unit for unit in first if unit.release], blocked, before, end, frame)
    return legs + late


def _round(
    first: Sequence[Unit], rest: Sequence[Unit], before: Before, begin: int, frame: Frame
) -> tuple[list[Leg], int]:
    """Canaries, and after their soak what waits for no others; with the second at which all of it has ended."""
    strategy, rules = frame.world.strategy, frame.rules
    watched = in_turn(first, rules, begin)  # an idle canary that fails has stopped nobody
    begin = score(watched, rules, begin).end + (strategy.soak_seconds if watched else 0)
    if rest:
        begin = max(begin, frame.second(strategy.not_before))
    idle = course([unit for unit in rest if not _busy(unit)], before, rules, begin)
    begin = score(idle, rules, begin).end
    asked = course([unit for unit in rest if _busy(unit)], before, rules, begin)
    parts = ((BatchKind.CANARY, watched), (BatchKind.IDLE, idle), (BatchKind.ASKED, asked))
    legs = [Leg(kind=kind, batch=batch) for kind, batches in parts for batch in batches]
    return legs, score(asked, rules, begin).end


def course_of(frame: Frame) -> Course:
    """What the strategy says of the time from the first batch to the last."""
    strategy = frame.world.strategy
    slices = {gang.name: frame.second(gang.earliest_stop) for gang in frame.world.gangs.values() if gang.earliest_stop}
    return Course(
        rules=frame.rules,
        pace=frame.pace,
        begin=frame.second(strategy.not_before),
        soak=strategy.soak_seconds,
        latest=frame.second(strategy.deadline) if strategy.deadline is not None else None,
        slices={name: end for name, end in slices.items() if end},
    )


def free_nodes(completions: Sequence[Completion], frame: Frame) -> list[FreeNodes]:
    """The completions as the timeline takes them."""
    sizes = frame.limits.pool.sizes
    return [
        FreeNodes(at=frame.second(one.at), nodes=len(one.nodes), gpus=sum(sizes[node] for node in one.nodes))
        for one in completions
    ]


def batches_of(line: Timeline, frame: Frame) -> tuple[BatchForecast, ...]:
    """The batches as the forecast shows them."""
    return tuple(
        BatchForecast(
            number=number,
            groups=tuple(unit.group for unit in leg.batch.units),
            kind=leg.kind,
            starts_at=frame.moment(leg.start),
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
        too_late(unit.group, deadline, frame.moment(leg.start + round(leg.batch.spread.quantile(0.95))))
        for leg in line.late
        for unit in leg.batch.units
    ]


def _busy(unit: Unit) -> bool:
    return bool(unit.group.gangs or unit.group.evicted)


def _waits_for(leg: Leg, frame: Frame, *, first: bool) -> str:
    soak = frame.world.strategy.not_before
    found = []
    if leg.soaked or (first and leg.kind is not BatchKind.CANARY and frame.second(soak)):
        found.append("It waits until the canaries were watched long enough.")
    if leg.slices:
        more = f" and {len(leg.slices) - 1} more" if len(leg.slices) > 1 else ""
        found.append(f"It waits for the end of the time slice that {leg.slices[0]}{more} declared.")
    if leg.window:
        found.append(f"It waits for a window, which opens {show(frame.moment(leg.start))}.")
    return " ".join(found)
