"""Packing of groups into batches: first-fit decreasing, then local search; a kept order never becomes worse.

Times are whole seconds after the forecast's `now`. A batch is filled with groups that may be stopped by its start,
largest first, so that a time slice that has not ended delays no other group; the number of batches is at most 11/9 of
the least number if all may be stopped at the same time. The search then dissolves batches, moves and swaps groups as
long as neither loss nor makespan gets worse and one of them gets better; it tries a bounded number of steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from upgrader.core.constraints.batch import GroupForecast
from upgrader.core.constraints.checkpoint_concurrency import LaneRequest, parked_seconds, request_offsets
from upgrader.core.forecast.duration_model import Spread, longest_of_spreads

TRIES = 500
"""Most steps of one local search: the first few steps gain the most, and the bound serves fleets of all sizes."""

Before = Sequence[Sequence[tuple[str, ...]]]
"""Batches of an earlier forecast, groups by their nodes."""


class Unit(Struct, frozen=True, kw_only=True, gc=False):
    """A group with all that packing depends on; `order` sorts by size, and names only break ties in it."""

    group: GroupForecast
    demands: tuple[tuple[str, int], ...]  # what it takes of each room
    spread: Spread  # from its start until its gangs run again
    order: tuple[object, ...]
    release: int = 0  # the earliest start, by time slices
    asked: tuple[LaneRequest, ...] = ()
    gpus: Mapping[str, int] = {}  # of its gangs


class Rules(Struct, frozen=True, kw_only=True):
    """Rules of every batch; `opens` gives the first second, from a given one on, in which a batch may start."""

    rooms: dict[str, int]
    opens: Callable[[int], int]
    lane_width: int = 0


class Batch(Struct, frozen=True, kw_only=True):
    """Groups upgraded together, with derived values; see `batch_of`."""

    units: tuple[Unit, ...]
    spread: Spread  # its duration: that of its longest group, after the last turn of the lanes
    turns: dict[str, float]  # seconds from the first request to that of each gang
    parked: dict[str, float]  # seconds that each gang waits for the others of its group
    release: int = 0

    @property
    def slowest(self) -> int:
        """Position of the group with the longest duration."""
        return max(range(len(self.units)), key=lambda at: self.units[at].spread.mean)

    @property
    def waits(self) -> float:
        """GPU-seconds parked for others."""
        gpus = {gang: count for unit in self.units for gang, count in unit.gpus.items()}
        return sum(gpus[gang] * seconds for gang, seconds in sorted(self.parked.items()))


class Score(Struct, frozen=True, kw_only=True):
    """Costs of batches that depend on their order: GPU-seconds parked for others, and when they end."""

    parked: int
    end: int

    def improves(self, other: "Score") -> bool:
        """Whether neither is worse and one is better."""
        return self.parked <= other.parked and self.end <= other.end and self != other


def batch_of(units: Iterable[Unit], rules: Rules) -> Batch:
    """A batch of these groups, in this order."""
    candidates = tuple(units)
    asked = [
        LaneRequest(gang=request.gang, lane=request.lane, seconds=request.seconds, group=at)
        for at, unit in enumerate(candidates)
        for request in unit.asked
    ]
    at = request_offsets(asked, rules.lane_width)
    last = Spread(max(at.values(), default=0.0))
    return Batch(
        units=candidates,
        spread=longest_of_spreads(unit.spread for unit in candidates).plus(last),
        turns=at,
        parked=parked_seconds(asked, at),
        release=max(unit.release for unit in candidates),
    )


def score_batches(batches: Sequence[Batch], rules: Rules, begin: int) -> Score:
    """The cost of these batches, one after the other from `begin` on."""
    at, waits = begin, 0.0
    for batch in batches:
        at = rules.opens(max(at, batch.release)) + round(batch.spread.mean)
        # Without lanes all requests are sent at the same time, so that gangs wait as long in any batch.
        waits += batch.waits if rules.lane_width else 0.0
    return Score(parked=round(waits), end=at)


def pack_units(units: Iterable[Unit], rules: Rules, begin: int) -> list[Batch]:
    """First-fit decreasing, batch by batch, each from the groups that may start by then.

    Each unit must fit an empty batch.
    """
    rest = sorted(units, key=lambda unit: unit.order)
    batches: list[Batch] = []
    at = begin
    while rest:
        at = rules.opens(at)
        ready = [unit for unit in rest if unit.release <= at]
        if not ready:
            at = min(unit.release for unit in rest)
            continue
        filled = _fill_batch(ready, rules.rooms)
        if not filled:
            raise AssertionError(f"{ready[0].group.name} fits no batch")
        batch = batch_of(filled, rules)
        taken = {unit.group.name for unit in filled}
        rest = [unit for unit in rest if unit.group.name not in taken]
        batches.append(batch)
        at += round(batch.spread.mean)
    return batches


def in_turn(units: Iterable[Unit], rules: Rules, begin: int) -> list[Batch]:
    """Batches in the given order: a batch takes the next groups, until one does not fit or may not start yet.

    Each unit must fit an empty batch.
    """
    rest = list(units)
    batches: list[Batch] = []
    at = begin
    while rest:
        at = rules.opens(max(at, rest[0].release))
        left, taken = dict(rules.rooms), 0
        while taken < len(rest) and rest[taken].release <= at and _fits_into(rest[taken], left):
            _take_room(rest[taken], left)
            taken += 1
        if not taken:
            raise AssertionError(f"{rest[0].group.name} fits no batch")
        batch = batch_of(rest[:taken], rules)
        rest = rest[taken:]
        batches.append(batch)
        at += round(batch.spread.mean)
    return batches


def improve_batches(batches: Sequence[Batch], rules: Rules, begin: int) -> list[Batch]:
    """Local search from these batches on: never worse, and better if a bounded number of steps finds a way."""
    best, known = list(batches), score_batches(batches, rules, begin)
    tries = TRIES
    improved = True
    while improved and tries > 0:
        improved = False
        for candidate in _neighbour_courses(best, rules):
            tries -= 1
            if candidate is not None and (reached := score_batches(candidate, rules, begin)).improves(known):
                best, known, improved = candidate, reached, True
                break
            if tries <= 0:
                break
    return best


def resume_batches(units: Iterable[Unit], before: Before, rules: Rules, begin: int) -> list[Batch]:
    """The batches of an earlier forecast, without deleted groups; new groups fill gaps, then follow."""
    there = {unit.group.nodes: unit for unit in units}
    kept: list[tuple[Unit, ...]] = []
    for groups in before:
        part = _fill_batch([there[nodes] for nodes in groups if nodes in there], rules.rooms)
        for unit in part:
            del there[unit.group.nodes]
        if part:
            kept.append(part)
    for unit in sorted(there.values(), key=lambda unit: unit.order):
        for at, part in enumerate(kept):
            if _fits_into(unit, _remaining_rooms(part, rules.rooms)):
                kept[at] = (*part, unit)
                del there[unit.group.nodes]
                break
    return [batch_of(part, rules) for part in kept] + pack_units(there.values(), rules, begin)


def best_course(units: Sequence[Unit], before: Before, rules: Rules, begin: int) -> list[Batch]:
    """The batches to use: fresh ones only if they are better than those of an earlier forecast."""
    fresh = improve_batches(pack_units(units, rules, begin), rules, begin)
    if not before:
        return fresh
    kept = resume_batches(units, before, rules, begin)
    return fresh if score_batches(fresh, rules, begin).improves(score_batches(kept, rules, begin)) else kept


def _fill_batch(units: Sequence[Unit], rooms: Mapping[str, int]) -> tuple[Unit, ...]:
    left, taken = dict(rooms), []
    for unit in units:
        if _fits_into(unit, left):
            taken.append(unit)
            _take_room(unit, left)
    return tuple(taken)


def _fits_into(unit: Unit, left: Mapping[str, int]) -> bool:
    return all(left[name] >= amount for name, amount in unit.demands)


def _take_room(unit: Unit, left: dict[str, int]) -> None:
    for name, amount in unit.demands:
        left[name] -= amount


def _remaining_rooms(units: Iterable[Unit], rooms: Mapping[str, int]) -> dict[str, int]:
    left = dict(rooms)
    for unit in units:
        _take_room(unit, left)
    return left


def _neighbour_courses(batches: list[Batch], rules: Rules) -> Iterator[list[Batch] | None]:
    """Courses that are one step away, the most promising first; None for a step that the limits forbid."""
    left = [_remaining_rooms(batch.units, rules.rooms) for batch in batches]
    for at in sorted(range(len(batches)), key=lambda at: (-left[at]["gpus"], -at)):
        yield _dissolve_batch(batches, left, at, rules)
    slowest = [batch.slowest for batch in batches]
    longest = [batch.units[place].spread.mean for batch, place in zip(batches, slowest, strict=True)]
    for at in range(len(batches)):
        for to in range(len(batches)):
            if to == at or longest[to] < longest[at]:
                continue
            yield _move_unit(batches, left[to], (at, slowest[at]), to, rules)
            for place, unit in enumerate(batches[to].units):
                if unit.spread.mean < longest[at]:
                    yield _swap_units(batches, (at, slowest[at]), (to, place), rules)
                    break


def _dissolve_batch(batches: list[Batch], left: list[dict[str, int]], at: int, rules: Rules) -> list[Batch] | None:
    rooms = [dict(room) for room in left]
    more: dict[int, list[Unit]] = {}
    for unit in batches[at].units:
        to = next((to for to, room in enumerate(rooms) if to != at and _fits_into(unit, room)), None)
        if to is None:
            return None
        _take_room(unit, rooms[to])
        more.setdefault(to, []).append(unit)
    grown = [batch_of((*batch.units, *more[to]), rules) if to in more else batch for to, batch in enumerate(batches)]
    return grown[:at] + grown[at + 1 :]


def _move_unit(
    batches: list[Batch], left: Mapping[str, int], source: tuple[int, int], to: int, rules: Rules
) -> list[Batch] | None:
    at, place = source
    units = batches[at].units
    if not _fits_into(units[place], left):
        return None
    changed = list(batches)
    changed[to] = batch_of((*batches[to].units, units[place]), rules)
    remain = units[:place] + units[place + 1 :]
    if remain:
        changed[at] = batch_of(remain, rules)
        return changed
    return changed[:at] + changed[at + 1 :]


def _swap_units(
    batches: list[Batch], first: tuple[int, int], second: tuple[int, int], rules: Rules
) -> list[Batch] | None:
    changed = list(batches)
    for (at, place), (to, where) in ((first, second), (second, first)):
        units = list(batches[at].units)
        units[place] = batches[to].units[where]
        if len(_fill_batch(units, rules.rooms)) < len(units):
            return None
        changed[at] = batch_of(units, rules)
    return changed
