"""The forecast: which nodes are visited together and in which order, whom that stops, and what holds the rest.

A pure function of the world: the same input gives the same bytes, in whatever order nodes and gangs came; other names
give the same shape. Every node that drifted is in exactly one batch, or held with a reason, or installed without a
plan.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from upgrader.core.budget import Availability, Cost, availability, cost
from upgrader.core.closure_holds import closure_holds, over_budget
from upgrader.core.closures import Closure, closures
from upgrader.core.drift import DriftReason, NodeDrift, drift
from upgrader.core.fleet import Snapshot, Target
from upgrader.core.holds import Hold, HoldReason, World
from upgrader.core.node_holds import node_holds
from upgrader.core.prediction import Harvest, Prediction
from upgrader.core.strategy import StrategyFacts

__all__ = [
    "BatchForecast",
    "BatchKind",
    "ClosureForecast",
    "Forecast",
    "Hold",
    "HoldReason",
    "Summary",
    "forecast",
]


class ClosureForecast(Struct, frozen=True, kw_only=True):
    """Nodes visited together; `gpus` are those of the nodes and of the stopped gangs wherever they run."""

    name: str
    nodes: tuple[str, ...]
    gangs: tuple[str, ...] = ()  # asked, stopped and restarted together
    evicted: tuple[str, ...] = ()  # replicated owners whose pods on these nodes are evicted
    gpus: int = 0
    added: int = 0  # those of the GPUs that are in service now


class BatchKind(StrEnum):
    """Why a batch comes where it comes."""

    CANARY = "Canary"  # one idle node of each class, then soak
    IDLE = "Idle"  # nobody is stopped
    ASKED = "Asked"  # gangs are asked and stopped


class BatchForecast(Struct, frozen=True, kw_only=True):
    """Closures visited at the same time, counted from 1."""

    number: int
    closures: tuple[ClosureForecast, ...]
    kind: BatchKind = BatchKind.ASKED
    starts_at: datetime | None = None  # not before; None: now
    seconds: int = 0  # how long it is expected to last
    waits_for: str = ""  # what it waits for until then, as a sentence

    @property
    def gpus(self) -> int:
        """GPUs out of service while it lasts, those before it not counted."""
        return sum(closure.gpus for closure in self.closures)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All its nodes."""
        return tuple(node for closure in self.closures for node in closure.nodes)


class Summary(Struct, frozen=True, kw_only=True):
    """The forecast in numbers."""

    drifted: int = 0  # nodes that differ from the target and were not visited yet
    nodes: int = 0  # nodes in batches
    batches: int = 0
    interruptions: int = 0  # gangs that are stopped
    held: int = 0  # nodes held
    installs: int = 0  # nodes without a driver, which get it without a plan


class Forecast(Struct, frozen=True, kw_only=True):
    """What a rollout would do if it started now, and what it would not do, and why."""

    stack: str
    revision: str
    made_at: datetime
    summary: Summary
    batches: tuple[BatchForecast, ...]
    holds: tuple[Hold, ...]
    installs: tuple[str, ...]
    drift: tuple[NodeDrift, ...]
    gpus: int  # of the pool
    allowed: int  # the budget, in GPUs
    taken: int  # GPUs that are out of service already
    harvest: tuple[Harvest, ...] = ()
    prediction: Prediction = Prediction()

    @property
    def interrupted(self) -> frozenset[str]:
        """Gangs that are stopped."""
        return frozenset(gang for batch in self.batches for closure in batch.closures for gang in closure.gangs)


def forecast(
    snapshot: Snapshot,
    target: Target,
    strategy: StrategyFacts,
    *,
    now: datetime,
    already: frozenset[str] = frozenset(),
    stopped_gangs: frozenset[str] = frozenset(),
) -> Forecast:
    """Batches and holds for everything that is still to be done.

    `already`: nodes that this plan visited or is visiting; they are neither visited again nor held.
    `stopped_gangs`: gangs that this plan has stopped; none is stopped twice.

    Raises:
        ConfigurationError: the strategy's budget is neither a number nor a percentage.
    """
    found = drift(snapshot, target)
    world = World.of(
        snapshot,
        target,
        strategy,
        drift=found,
        already=already,
        stopped_gangs=stopped_gangs,
    )
    open_nodes = [one.node for one in found if one.drifted and one.node not in already]
    installs = [name for name in open_nodes if _installed_without_plan(world, name)]
    pool = availability(
        snapshot.nodes,
        strategy.max_unavailable,
        broken=world.broken,
        elsewhere=snapshot.foreign_unavailable_gpus,
    )
    units = closures((name for name in open_nodes if name not in installs), snapshot.gangs)
    batches, holds = _pack(world, units, pool)
    return Forecast(
        stack=target.stack,
        revision=target.revision,
        made_at=now,
        summary=Summary(
            drifted=len(open_nodes),
            nodes=sum(len(batch.nodes) for batch in batches),
            batches=len(batches),
            interruptions=sum(len(closure.gangs) for batch in batches for closure in batch.closures),
            held=len({node for hold in holds for node in hold.nodes}),
            installs=len(installs),
        ),
        batches=batches,
        holds=holds,
        installs=tuple(installs),
        drift=found,
        gpus=pool.total,
        allowed=pool.allowed,
        taken=pool.taken,
    )


def _installed_without_plan(world: World, name: str) -> bool:
    found = world.drift[name]
    bare = found.has(DriftReason.NOT_INSTALLED) or found.has(DriftReason.DRIVER_ABSENT)
    return bare and name not in world.occupied and not node_holds(world, name)


def _pack(
    world: World, units: Sequence[Closure], pool: Availability
) -> tuple[tuple[BatchForecast, ...], tuple[Hold, ...]]:
    holds: list[Hold] = []
    free: list[ClosureForecast] = []
    for unit in units:
        price = cost(unit.nodes, (world.gangs[name] for name in unit.gangs), pool)
        found = closure_holds(world, unit)
        found += over_budget(unit, price, pool, held=bool(found))
        if found:
            holds += found
        else:
            free.append(_priced(unit, price))
    # Idle nodes first and by themselves: a driver that fails is seen before any gang is stopped for it, and what is
    # upgraded takes the gangs that restart.
    idle = [one for one in free if not one.gangs and not one.evicted]
    busy = [one for one in free if one.gangs or one.evicted]
    parts = _first_fit(world, idle, pool) + _first_fit(world, busy, pool)
    batches = (BatchForecast(number=number, closures=tuple(part)) for number, part in enumerate(parts, start=1))
    return tuple(batches), tuple(sorted(holds, key=lambda hold: (hold.reason, hold.subject, hold.nodes)))


def _priced(unit: Closure, price: Cost) -> ClosureForecast:
    return ClosureForecast(
        name=unit.name,
        nodes=unit.nodes,
        gangs=unit.gangs,
        evicted=unit.evicted,
        gpus=price.gpus,
        added=price.added,
    )


def _first_fit(world: World, units: list[ClosureForecast], pool: Availability) -> list[list[ClosureForecast]]:
    # Decreasing: at most 11/9 of the least number of batches. A batch takes at most the budget, whatever was down
    # before, and of what is in service no more than what the budget has left.
    bins: list[tuple[list[ClosureForecast], Cost]] = []
    for unit in sorted(units, key=lambda unit: _size_then_name(world, unit)):
        for at, (part, used) in enumerate(bins):
            grown = Cost(gpus=used.gpus + unit.gpus, added=used.added + unit.added)
            if grown.gpus <= pool.allowed and grown.added <= pool.remaining:
                bins[at] = ([*part, unit], grown)
                break
        else:
            bins.append(([unit], Cost(gpus=unit.gpus, added=unit.added)))
    return [part for part, _ in bins]


def _size_then_name(
    world: World, unit: ClosureForecast
) -> tuple[int, int, int, int, int, tuple[int, ...], tuple[str, ...]]:
    # Names break only ties between closures that are alike in all that can be counted.
    gangs = tuple(sorted(world.gangs[name].gpus for name in unit.gangs))
    return (-unit.gpus, -unit.added, -len(unit.nodes), -len(unit.gangs), -len(unit.evicted), gangs, unit.nodes)
