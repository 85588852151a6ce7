"""When batches start and end: one after the other, in windows, after soaks and time slices, before the deadline.

Times are whole seconds after the forecast's `now`. Nodes that are waited for are upgraded between two batches once
their jobs have ended, as the rollout does it: what is idle comes first.
"""

from collections.abc import Sequence

from msgspec import Struct

from upgrader.core.constraints.batch import BatchKind
from upgrader.core.forecast.bin_packing import Batch, Rules
from upgrader.core.forecast.duration_model import Pace, Spread


class Leg(Struct, frozen=True, kw_only=True):
    """A batch that is to come, or (once placed) when it starts and what it waits for beyond those before it."""

    kind: BatchKind
    batch: Batch
    start: int = 0
    soaked: bool = False  # it waits until the canaries were watched long enough
    slices: tuple[str, ...] = ()  # gangs whose time slices it waits for
    window: bool = False  # it waits until a window opens


class FreeNodes(Struct, frozen=True, kw_only=True):
    """Nodes whose jobs have ended: when they are free, how many, with how many GPUs."""

    at: int
    nodes: int
    gpus: int


class Course(Struct, frozen=True, kw_only=True):
    """What holds from the first batch to the last."""

    rules: Rules
    pace: Pace
    begin: int = 0
    soak: int = 0
    latest: int | None = None  # seconds after now by which a batch must end
    slices: dict[str, int] = {}  # gangs whose time slice is not over: when it is


class Timeline(Struct, frozen=True, kw_only=True):
    """Where everything is placed; `late` would end after the deadline."""

    legs: tuple[Leg, ...]
    late: tuple[Leg, ...]
    end: int
    spreads: tuple[Spread, ...]  # of all that is upgraded, completions included


def place(legs: Sequence[Leg], completions: Sequence[FreeNodes], course: Course, *, stretch: float = 1.0) -> Timeline:
    """The batches in their order, each as long as expected times `stretch`."""
    at, placed, late, spreads = 0, [], [], []
    waiting = sorted(completions, key=lambda one: (one.at, one.nodes, one.gpus))
    soaks = False
    for leg in legs:
        soaked = False
        if soaks and leg.kind is not BatchKind.CANARY:
            at, soaked, soaks = at + course.soak, course.soak > 0, False
        if leg.kind is not BatchKind.CANARY:  # these do not wait until those of other classes were watched
            at, taken = _take_free(waiting, max(at, course.begin), course, stretch)
            spreads += taken
        found = _placed(leg, at, course, soaked=soaked)
        if course.latest is not None and found.start + leg.batch.spread.quantile(0.95) > course.latest:
            late.append(found)
            continue
        placed.append(found)
        spreads.append(leg.batch.spread)
        at = found.start + round(stretch * leg.batch.spread.mean)
        soaks = soaks or leg.kind is BatchKind.CANARY
    at = max(at, course.begin)
    while waiting:
        at, taken = _take_free(waiting, max(at, waiting[0].at), course, stretch)
        spreads += taken
    return Timeline(legs=tuple(placed), late=tuple(late), end=at, spreads=tuple(spreads))


def finish(timeline: Timeline, completions: Sequence[FreeNodes], course: Course, level: float) -> int:
    """By when all is over with probability `level`: every batch is stretched by what the whole is at that level."""
    whole = course.pace.whole(timeline.spreads)
    if not whole.mean:
        return timeline.end
    again = [Leg(kind=leg.kind, batch=leg.batch) for leg in timeline.legs]
    free = Course(rules=course.rules, pace=course.pace, begin=course.begin, soak=course.soak)
    return place(again, completions, free, stretch=whole.quantile(level) / whole.mean).end


def _placed(leg: Leg, at: int, course: Course, *, soaked: bool) -> Leg:
    ready = max(at, leg.batch.release)
    start = course.rules.opens(ready)
    gangs = [gang for unit in leg.batch.units for gang in unit.group.gangs]
    return Leg(
        kind=leg.kind,
        batch=leg.batch,
        start=start,
        soaked=soaked,
        slices=tuple(gang for gang in gangs if course.slices.get(gang, 0) > at),
        window=start > ready,
    )


def _take_free(waiting: list[FreeNodes], at: int, course: Course, stretch: float) -> tuple[int, list[Spread]]:
    """Node upgrade all that is free by `at`, in as many batches as the budget asks for."""
    free = [one for one in waiting if one.at <= at]
    del waiting[: len(free)]
    if not free:
        return at, []
    gpus, nodes = sum(one.gpus for one in free), sum(one.nodes for one in free)
    room = max(1, course.rules.rooms["added"])
    count = min(nodes, max(1, -(-gpus // room)))
    spread = course.pace.group(nodes=-(-nodes // count), gangs=0, checkpoint=(0.0, 0.0))
    for _ in range(count):
        at = course.rules.opens(at) + round(stretch * spread.mean)
    return at, [spread] * count
