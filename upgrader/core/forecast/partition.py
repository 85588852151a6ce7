"""What becomes of each group: upgraded, waited for, or blocked with a reason."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from upgrader.core.constraints.batch import GroupForecast
from upgrader.core.constraints.blockers import Blocker, World
from upgrader.core.constraints.capacity import Load, demands
from upgrader.core.constraints.checkpoint_concurrency import ROUNDS, Asked
from upgrader.core.constraints.group_blockers import group_blockers, over_budget, too_late
from upgrader.core.constraints.upgrade_groups import UpgradeGroup
from upgrader.core.forecast.bin_packing import Unit
from upgrader.core.forecast.completion import completion_of
from upgrader.core.forecast.context import Frame, turn
from upgrader.core.forecast.duration_model import longest_of
from upgrader.core.forecast.interruption_cost import without_checkpoint
from upgrader.core.model.fleet import Gang
from upgrader.core.model.prediction import Completion


class Sorted(Struct, frozen=True, kw_only=True):
    """Every group, once."""

    free: tuple[Unit, ...]
    completions: tuple[Completion, ...]
    blockers: tuple[Blocker, ...]


def sort_out(units: Iterable[UpgradeGroup], frame: Frame) -> Sorted:
    """Part the groups of all nodes that are to be upgraded."""
    free: list[Unit] = []
    completions: list[Completion] = []
    blockers: list[Blocker] = []
    deadline = frame.world.strategy.deadline
    for unit in units:
        completion = completion_of(frame.world, unit, frame.now)
        if completion is not None and _in_time(completion, frame):
            completions.append(completion)
            continue
        load = frame.limits.load(unit.nodes, (frame.world.gangs[name] for name in unit.gangs))
        found = group_blockers(frame.world, unit)
        found += over_budget(unit, load, frame.limits, blocked=bool(found))
        if not found and deadline is not None and frame.now >= deadline:
            found = [too_late(unit, deadline, None)]
        blockers += found
        if not found:
            free.append(_unit(unit, load, frame))
    return Sorted(
        free=tuple(free),
        completions=tuple(sorted(completions, key=lambda one: (one.at, one.nodes))),
        blockers=tuple(blockers),
    )


def _in_time(completion: Completion, frame: Frame) -> bool:
    deadline = frame.world.strategy.deadline
    if deadline is None:
        return True
    alone = frame.pace.group(nodes=len(completion.nodes), gangs=0, checkpoint=(0.0, 0.0))
    return frame.moment(frame.second(completion.at) + round(alone.quantile(0.95))) <= deadline


def _unit(unit: UpgradeGroup, load: Load, frame: Frame) -> Unit:
    gangs = [frame.world.gangs[name] for name in unit.gangs]
    asked = tuple(
        Asked(gang=gang.name, lane=gang.lane, seconds=longest_of(1, *frame.checkpoint(gang)).mean)
        for gang in gangs
        if not without_checkpoint(gang)
    )
    slowest = max([(0.0, 0.0), *(frame.checkpoint(gang) for gang in gangs if not without_checkpoint(gang))])
    release = frame.second(max([frame.now, *_slices(gangs)]))
    turns = _turns(asked, frame)
    return Unit(
        group=GroupForecast(
            name=unit.name,
            nodes=unit.nodes,
            gangs=unit.gangs,
            evicted=unit.evicted,
            gpus=load.gpus,
            added=load.added,
            rebooted=tuple(name for name in unit.nodes if name in frame.world.rebooted),
            reconfigured=tuple(name for name in unit.nodes if _only_reconfigured(name, frame.world)),
            other_pods=_other_pods(unit, frame),
        ),
        demands=demands(load) + turns,
        spread=frame.pace.group(nodes=len(unit.nodes), gangs=len(gangs), checkpoint=slowest),
        order=_order(unit, load, gangs, slowest[0], turns, release),
        release=release,
        asked=asked,
        gpus={gang.name: gang.gpus for gang in gangs},
    )


def _only_reconfigured(name: str, world: World) -> bool:
    return name in world.emptied and name not in world.rebooted


def _other_pods(unit: UpgradeGroup, frame: Frame) -> int:
    there = frame.world.emptied.intersection(unit.nodes)
    members = (one for name in (*unit.gangs, *unit.evicted) for one in frame.world.gangs[name].members)
    return sum(one.node in there and not one.gpus for one in members)


def _slices(gangs: Iterable[Gang]) -> list[datetime]:
    return [end for gang in gangs if (end := gang.earliest_stop) is not None]


def _turns(asked: Iterable[Asked], frame: Frame) -> tuple[tuple[str, int], ...]:
    width = frame.rules.lane_width
    counts: dict[str, int] = {}
    for one in asked if width else ():
        counts[turn(one.lane)] = counts.get(turn(one.lane), 0) + 1
    # A group cannot be parted: one that needs more turns by itself has its lanes to itself.
    return tuple((name, min(count, width * ROUNDS)) for name, count in sorted(counts.items()))


def _order(
    unit: UpgradeGroup,
    load: Load,
    gangs: list[Gang],
    checkpoint: float,
    turns: tuple[tuple[str, int], ...],
    release: int,
) -> tuple[object, ...]:
    """Largest first; names break only ties between groups that are alike in all that packing looks at."""
    sizes = tuple(sorted(gang.gpus for gang in gangs))
    counts = (-load.gpus, -load.added, -len(unit.nodes), -len(unit.gangs), -len(unit.evicted))
    return (*counts, sizes, -checkpoint, release, tuple(load.domains.items()), turns, unit.nodes)
