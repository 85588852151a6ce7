"""Partition of the groups: upgraded, waited for, or blocked with a reason."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from upgrader.core.constraints.batch import GroupForecast
from upgrader.core.constraints.blockers import Blocker, IndexedSnapshot
from upgrader.core.constraints.capacity import GpuDemand, load_demands
from upgrader.core.constraints.checkpoint_concurrency import ROUNDS, LaneRequest
from upgrader.core.constraints.group_blockers import group_blockers, over_budget, too_late
from upgrader.core.constraints.upgrade_groups import UpgradeGroup
from upgrader.core.forecast.bin_packing import Unit
from upgrader.core.forecast.completion import completion_of
from upgrader.core.forecast.context import Frame, lane_room
from upgrader.core.forecast.duration_model import longest_of
from upgrader.core.forecast.interruption_cost import without_checkpoint
from upgrader.core.model.fleet import Gang
from upgrader.core.model.prediction import Completion


class SortedGroups(Struct, frozen=True, kw_only=True):
    """Every group, once."""

    free: tuple[Unit, ...]
    completions: tuple[Completion, ...]
    blockers: tuple[Blocker, ...]


def sort_out(units: Iterable[UpgradeGroup], frame: Frame) -> SortedGroups:
    """Divide the groups of all nodes that are to be upgraded."""
    free: list[Unit] = []
    completions: list[Completion] = []
    blockers: list[Blocker] = []
    deadline = frame.world.strategy.deadline
    for unit in units:
        completion = completion_of(frame.world, unit, frame.now)
        if completion is not None and _in_time(completion, frame):
            completions.append(completion)
            continue
        load = frame.limits.load_of(unit.nodes, (frame.world.gangs[name] for name in unit.gangs))
        own = group_blockers(frame.world, unit)
        own += over_budget(unit, load, frame.limits, blocked=bool(own))
        if not own and deadline is not None and frame.now >= deadline:
            own = [too_late(unit, deadline, None)]
        blockers += own
        if not own:
            free.append(_make_unit(unit, load, frame))
    return SortedGroups(
        free=tuple(free),
        completions=tuple(sorted(completions, key=lambda completion: (completion.at, completion.nodes))),
        blockers=tuple(blockers),
    )


def _in_time(completion: Completion, frame: Frame) -> bool:
    deadline = frame.world.strategy.deadline
    if deadline is None:
        return True
    alone = frame.pace.group_duration(nodes=len(completion.nodes), gangs=0, checkpoint=(0.0, 0.0))
    return frame.time_at(frame.seconds_until(completion.at) + round(alone.quantile(0.95))) <= deadline


def _make_unit(unit: UpgradeGroup, load: GpuDemand, frame: Frame) -> Unit:
    gangs = [frame.world.gangs[name] for name in unit.gangs]
    asked = tuple(
        LaneRequest(gang=gang.name, lane=gang.lane, seconds=longest_of(1, *frame.checkpoint_spread(gang)).mean)
        for gang in gangs
        if not without_checkpoint(gang)
    )
    slowest = max([(0.0, 0.0), *(frame.checkpoint_spread(gang) for gang in gangs if not without_checkpoint(gang))])
    release = frame.seconds_until(max([frame.now, *_slice_ends(gangs)]))
    turns = _lane_turns(asked, frame)
    return Unit(
        group=GroupForecast(
            name=unit.name,
            nodes=unit.nodes,
            gangs=unit.gangs,
            evicted=unit.evicted,
            gpus=load.gpus,
            added=load.added,
            rebooted=tuple(name for name in unit.nodes if name in frame.world.rebooted),
            perhaps_rebooted=tuple(name for name in unit.nodes if name in frame.world.perhaps_rebooted),
            reconfigured=tuple(name for name in unit.nodes if _only_reconfigured(name, frame.world)),
            other_pods=_other_pods(unit, frame),
        ),
        demands=load_demands(load) + turns,
        spread=frame.pace.group_duration(nodes=len(unit.nodes), gangs=len(gangs), checkpoint=slowest),
        order=_packing_order(unit, load, gangs, slowest[0], turns, release),
        release=release,
        asked=asked,
        gpus={gang.name: gang.gpus for gang in gangs},
    )


def _only_reconfigured(name: str, world: IndexedSnapshot) -> bool:
    return name in world.emptied - world.rebooted - world.perhaps_rebooted


def _other_pods(unit: UpgradeGroup, frame: Frame) -> int:
    emptied = frame.world.emptied.intersection(unit.nodes)
    members = (member for name in (*unit.gangs, *unit.evicted) for member in frame.world.gangs[name].members)
    return sum(member.node in emptied and not member.gpus for member in members)


def _slice_ends(gangs: Iterable[Gang]) -> list[datetime]:
    return [end for gang in gangs if (end := gang.earliest_stop) is not None]


def _lane_turns(asked: Iterable[LaneRequest], frame: Frame) -> tuple[tuple[str, int], ...]:
    width = frame.rules.lane_width
    counts: dict[str, int] = {}
    for request in asked if width else ():
        counts[lane_room(request.lane)] = counts.get(lane_room(request.lane), 0) + 1
    # A group cannot be divided: if it needs more turns alone, it has its lanes to itself.
    return tuple((name, min(count, width * ROUNDS)) for name, count in sorted(counts.items()))


def _packing_order(
    unit: UpgradeGroup,
    load: GpuDemand,
    gangs: list[Gang],
    checkpoint: float,
    turns: tuple[tuple[str, int], ...],
    release: int,
) -> tuple[object, ...]:
    """Largest first; names only break ties between groups that are equal in all that packing depends on."""
    sizes = tuple(sorted(gang.gpus for gang in gangs))
    counts = (-load.gpus, -load.added, -len(unit.nodes), -len(unit.gangs), -len(unit.evicted))
    return (*counts, sizes, -checkpoint, release, tuple(load.domains.items()), turns, unit.nodes)
