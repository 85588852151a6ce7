"""Which groups are upgraded together: first-fit decreasing, then local search; a kept order is never made worse.

Times are whole seconds after the forecast's `now`. A batch is filled with what may be stopped by its start, largest
first, so a time slice that is not over delays nobody else; as many batches as needed come out, at most 11/9 of the
least number where all may be stopped at once. The search then dissolves batches, moves and swaps groups as long as
neither loss nor makespan gets worse and one of them better; it tries a bounded number of steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from upgrader.core.constraints.batch import GroupForecast
from upgrader.core.constraints.checkpoint_concurrency import Asked, parked, turns
from upgrader.core.forecast.duration_model import Spread, together

TRIES = 500
"""Most steps of one local search: what is to be gained is gained by the first few, and fleets of all sizes must do."""

Before = Sequence[Sequence[tuple[str, ...]]]
"""Batches of an earlier forecast, groups by their nodes."""


class Unit(Struct, frozen=True, kw_only=True, gc=False):
    """A group with all that packing needs to know; `order` says how large it is, and names only break ties in it."""

    group: GroupForecast
    demands: tuple[tuple[str, int], ...]  # of the rooms, what it takes
    spread: Spread  # from its start until its gangs are back
    order: tuple[object, ...]
    release: int = 0  # not to be started before: time slices
    asked: tuple[Asked, ...] = ()
    gpus: Mapping[str, int] = {}  # of its gangs


class Rules(Struct, frozen=True, kw_only=True):
    """What holds for every batch; `opens` gives the first second from one on in which a batch may start."""

    rooms: dict[str, int]
    opens: Callable[[int], int]
    lane_width: int = 0


class Batch(Struct, frozen=True, kw_only=True):
    """Groups upgraded together and what follows from that; see `batch_of`."""

    units: tuple[Unit, ...]
    spread: Spread  # how long it takes: the longest of its groups, after the last turn of the lanes
    turns: dict[str, float]  # seconds after the first question at which each gang is asked
    parked: dict[str, float]  # seconds that each gang waits for the others of its group
    release: int = 0

    @property
    def slowest(self) -> int:
        """Position of the group that takes longest."""
        return max(range(len(self.units)), key=lambda at: self.units[at].spread.mean)

    @property
    def waits(self) -> float:
        """GPU-seconds parked for others."""
        gpus = {gang: count for unit in self.units for gang, count in unit.gpus.items()}
        return sum(gpus[gang] * seconds for gang, seconds in sorted(self.parked.items()))


class Score(Struct, frozen=True, kw_only=True):
    """What batches cost beyond what all orders cost: GPU-seconds parked for others, and when they end."""

    parked: int
    end: int

    def improves(self, other: "Score") -> bool:
        """Whether neither is worse and one is better."""
        return self.parked <= other.parked and self.end <= other.end and self != other


def batch_of(units: Iterable[Unit], rules: Rules) -> Batch:
    """A batch of these groups, in this order."""
    every = tuple(units)
    asked = [
        Asked(gang=one.gang, lane=one.lane, seconds=one.seconds, group=at)
        for at, unit in enumerate(every)
        for one in unit.asked
    ]
    at = turns(asked, rules.lane_width)
    last = Spread(max(at.values(), default=0.0))
    return Batch(
        units=every,
        spread=together(unit.spread for unit in every).plus(last),
        turns=at,
        parked=parked(asked, at),
        release=max(unit.release for unit in every),
    )


def score(batches: Sequence[Batch], rules: Rules, begin: int) -> Score:
    """What these batches cost one after the other from `begin` on."""
    at, waits = begin, 0.0
    for batch in batches:
        at = rules.opens(max(at, batch.release)) + round(batch.spread.mean)
        # Without lanes all are asked at once, so they wait as long in any batch.
        waits += batch.waits if rules.lane_width else 0.0
    return Score(parked=round(waits), end=at)


def pack(units: Iterable[Unit], rules: Rules, begin: int) -> list[Batch]:
    """First-fit decreasing, batch by batch, each from what may be started by then.

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
        filled = _fill(ready, rules.rooms)
        if not filled:
            raise AssertionError(f"{ready[0].group.name} fits no batch")
        batch = batch_of(filled, rules)
        taken = {unit.group.name for unit in filled}
        rest = [unit for unit in rest if unit.group.name not in taken]
        batches.append(batch)
        at += round(batch.spread.mean)
    return batches


def in_turn(units: Iterable[Unit], rules: Rules, begin: int) -> list[Batch]:
    """In the order given: a batch takes what comes next, until one does not fit or may not be started yet.

    Each unit must fit an empty batch.
    """
    rest = list(units)
    batches: list[Batch] = []
    at = begin
    while rest:
        at = rules.opens(max(at, rest[0].release))
        left, taken = dict(rules.rooms), 0
        while taken < len(rest) and rest[taken].release <= at and _fits(rest[taken], left):
            _take(rest[taken], left)
            taken += 1
        if not taken:
            raise AssertionError(f"{rest[0].group.name} fits no batch")
        batch = batch_of(rest[:taken], rules)
        rest = rest[taken:]
        batches.append(batch)
        at += round(batch.spread.mean)
    return batches


def improve(batches: Sequence[Batch], rules: Rules, begin: int) -> list[Batch]:
    """Local search from these batches on: never worse, and better where a bounded number of steps finds a way."""
    best, known = list(batches), score(batches, rules, begin)
    tries = TRIES
    found = True
    while found and tries > 0:
        found = False
        for candidate in _neighbours(best, rules):
            tries -= 1
            if candidate is not None and (reached := score(candidate, rules, begin)).improves(known):
                best, known, found = candidate, reached, True
                break
            if tries <= 0:
                break
    return best


def resumed(units: Iterable[Unit], before: Before, rules: Rules, begin: int) -> list[Batch]:
    """The batches of an earlier forecast with what of them is there still; what is new fills gaps, then follows."""
    there = {unit.group.nodes: unit for unit in units}
    kept: list[tuple[Unit, ...]] = []
    for groups in before:
        part = _fill([there[nodes] for nodes in groups if nodes in there], rules.rooms)
        for unit in part:
            del there[unit.group.nodes]
        if part:
            kept.append(part)
    for unit in sorted(there.values(), key=lambda unit: unit.order):
        for at, part in enumerate(kept):
            if _fits(unit, _left(part, rules.rooms)):
                kept[at] = (*part, unit)
                del there[unit.group.nodes]
                break
    return [batch_of(part, rules) for part in kept] + pack(there.values(), rules, begin)


def course(units: Sequence[Unit], before: Before, rules: Rules, begin: int) -> list[Batch]:
    """The batches to go by: fresh ones only where they are better than what an earlier forecast said."""
    fresh = improve(pack(units, rules, begin), rules, begin)
    if not before:
        return fresh
    kept = resumed(units, before, rules, begin)
    return fresh if score(fresh, rules, begin).improves(score(kept, rules, begin)) else kept


def _fill(units: Sequence[Unit], rooms: Mapping[str, int]) -> tuple[Unit, ...]:
    left, taken = dict(rooms), []
    for unit in units:
        if _fits(unit, left):
            taken.append(unit)
            _take(unit, left)
    return tuple(taken)


def _fits(unit: Unit, left: Mapping[str, int]) -> bool:
    return all(left[name] >= amount for name, amount in unit.demands)


def _take(unit: Unit, left: dict[str, int]) -> None:
    for name, amount in unit.demands:
        left[name] -= amount


def _left(units: Iterable[Unit], rooms: Mapping[str, int]) -> dict[str, int]:
    left = dict(rooms)
    for unit in units:
        _take(unit, left)
    return left


def _neighbours(batches: list[Batch], rules: Rules) -> Iterator[list[Batch] | None]:
    """Courses one step away, the most promising first; None for a step that the limits forbid."""
    left = [_left(batch.units, rules.rooms) for batch in batches]
    for at in sorted(range(len(batches)), key=lambda at: (-left[at]["gpus"], -at)):
        yield _dissolved(batches, left, at, rules)
    slowest = [batch.slowest for batch in batches]
    longest = [batch.units[place].spread.mean for batch, place in zip(batches, slowest, strict=True)]
    for at in range(len(batches)):
        for to in range(len(batches)):
            if to == at or longest[to] < longest[at]:
                continue
            yield _moved(batches, left[to], (at, slowest[at]), to, rules)
            for place, unit in enumerate(batches[to].units):
                if unit.spread.mean < longest[at]:
                    yield _swapped(batches, (at, slowest[at]), (to, place), rules)
                    break


def _dissolved(batches: list[Batch], left: list[dict[str, int]], at: int, rules: Rules) -> list[Batch] | None:
    rooms = [dict(one) for one in left]
    more: dict[int, list[Unit]] = {}
    for unit in batches[at].units:
        to = next((to for to, room in enumerate(rooms) if to != at and _fits(unit, room)), None)
        if to is None:
            return None
        _take(unit, rooms[to])
        more.setdefault(to, []).append(unit)
    grown = [batch_of((*batch.units, *more[to]), rules) if to in more else batch for to, batch in enumerate(batches)]
    return grown[:at] + grown[at + 1 :]


def _moved(
    batches: list[Batch], left: Mapping[str, int], source: tuple[int, int], to: int, rules: Rules
) -> list[Batch] | None:
    at, place = source
    units = batches[at].units
    if not _fits(units[place], left):
        return None
    changed = list(batches)
    changed[to] = batch_of((*batches[to].units, units[place]), rules)
    remain = units[:place] + units[place + 1 :]
    if remain:
        changed[at] = batch_of(remain, rules)
        return changed
    return changed[:at] + changed[at + 1 :]


def _swapped(batches: list[Batch], one: tuple[int, int], other: tuple[int, int], rules: Rules) -> list[Batch] | None:
    changed = list(batches)
    for (at, place), (to, where) in ((one, other), (other, one)):
        units = list(batches[at].units)
        units[place] = batches[to].units[where]
        if len(_fill(units, rules.rooms)) < len(units):
            return None
        changed[at] = batch_of(units, rules)
    return changed
