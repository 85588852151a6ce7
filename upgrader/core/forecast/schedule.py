"""Times of batches: one after the other, in windows, after soaks and time slices, before the deadline.

Times are whole seconds after the forecast's `now`. Nodes that are waited for are upgraded between two batches once
their jobs have ended, as in the rollout: idle nodes come first.
"""

from collections.abc import Sequence

from msgspec import Struct

from upgrader.core.constraints.batch import BatchKind
from upgrader.core.forecast.bin_packing import Batch, Rules
from upgrader.core.forecast.duration_model import GroupDurations, Spread


class Leg(Struct, frozen=True, kw_only=True):
    """A batch that is to come; once placed, with its start and what it waits for beside the batches before it."""

    kind: BatchKind
    batch: Batch
    start: int = 0
    soaked: bool = False  # it waits for the end of the canaries' soak
    slices: tuple[str, ...] = ()  # gangs whose time slices it waits for
    window: bool = False  # it waits until a window opens


class FreeNodes(Struct, frozen=True, kw_only=True):
    """Nodes whose jobs have ended: when they are free, how many, with how many GPUs."""

    at: int
    nodes: int
    gpus: int


class Course(Struct, frozen=True, kw_only=True):
    """Settings that hold from the first batch to the last."""

    rules: Rules
    pace: GroupDurations
    begin: int = 0
    soak: int = 0
    latest: int | None = None  # seconds after now by which a batch must end
    slices: dict[str, int] = {}  # gangs whose time slice has not ended: when it ends


class Timeline(Struct, frozen=True, kw_only=True):
    """The placed batches; those in `late` would end after the deadline."""

    legs: tuple[Leg, ...]
    late: tuple[Leg, ...]
    end: int
    spreads: tuple[Spread, ...]  # of all upgrades, completions included


def place_batches(
    legs: Sequence[Leg], completions: Sequence[FreeNodes], course: Course, *, stretch: float = 1.0
) -> Timeline:
    """Place the batches in their order, each with its expected duration times `stretch`."""
    at, placed, late, spreads = 0, [], [], []
    waiting = sorted(completions, key=lambda free: (free.at, free.nodes, free.gpus))
    soaks = False
    for leg in legs:
        soaked = False
        if soaks and leg.kind is not BatchKind.CANARY:
            at, soaked, soaks = at + course.soak, course.soak > 0, False
        if leg.kind is not BatchKind.CANARY:  # canaries do not wait for the soak of other classes
            at, taken = _take_free(waiting, max(at, course.begin), course, stretch)
            spreads += taken
        here = _place_batch(leg, at, course, soaked=soaked)
        if course.latest is not None and here.start + leg.batch.spread.quantile(0.95) > course.latest:
            late.append(here)
            continue
        placed.append(here)
        spreads.append(leg.batch.spread)
        at = here.start + round(stretch * leg.batch.spread.mean)
        soaks = soaks or leg.kind is BatchKind.CANARY
    at = max(at, course.begin)
    while waiting:
        at, taken = _take_free(waiting, max(at, waiting[0].at), course, stretch)
        spreads += taken
    return Timeline(legs=tuple(placed), late=tuple(late), end=at, spreads=tuple(spreads))


def predict_finish(timeline: Timeline, completions: Sequence[FreeNodes], course: Course, level: float) -> int:
    """When the rollout has ended with probability `level`: every batch is stretched as the whole is at that level."""
    whole = course.pace.rollout_duration(timeline.spreads)
    if not whole.mean:
        return timeline.end
    again = [Leg(kind=leg.kind, batch=leg.batch) for leg in timeline.legs]
    free = Course(rules=course.rules, pace=course.pace, begin=course.begin, soak=course.soak)
    return place_batches(again, completions, free, stretch=whole.quantile(level) / whole.mean).end


def _place_batch(leg: Leg, at: int, course: Course, *, soaked: bool) -> Leg:
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
    """Upgrade all nodes that are free by `at`, in as many batches as the budget requires."""
    free = [nodes_free for nodes_free in waiting if nodes_free.at <= at]
    del waiting[: len(free)]
    if not free:
        return at, []
    gpus, nodes = sum(batch.gpus for batch in free), sum(batch.nodes for batch in free)
    room = max(1, course.rules.rooms["added"])
    count = min(nodes, max(1, -(-gpus // room)))
    spread = course.pace.group_duration(nodes=-(-nodes // count), gangs=0, checkpoint=(0.0, 0.0))
    for _ in range(count):
        at = course.rules.opens(at) + round(stretch * spread.mean)
    return at, [spread] * count
