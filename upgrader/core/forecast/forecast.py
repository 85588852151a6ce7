"""The forecast: batches of nodes and their order, the gangs that are stopped, and the blockers of other nodes.

A pure function of the world: the same input gives the same bytes, in any order of nodes and gangs; other names give
the same shape. Every node that drifted is in exactly one batch, waited for, blocked with a reason, or installed without
a plan.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from upgrader.core.constraints.batch import BatchForecast, BatchKind, GroupForecast
from upgrader.core.constraints.blockers import BlockedReason, Blocker, IndexedSnapshot
from upgrader.core.constraints.budget import pool_availability
from upgrader.core.constraints.capacity import pool_capacity
from upgrader.core.constraints.node_blockers import node_blockers
from upgrader.core.constraints.upgrade_groups import build_groups
from upgrader.core.errors import ConfigurationError
from upgrader.core.forecast.batch_order import batches_of, course_of, free_nodes, late_blockers, legs_of
from upgrader.core.forecast.context import Frame, frame_of
from upgrader.core.forecast.duration_model import GroupDurations
from upgrader.core.forecast.interruption_cost import rollout_losses
from upgrader.core.forecast.partition import sort_out
from upgrader.core.forecast.schedule import Timeline, place_batches, predict_finish
from upgrader.core.gpu_stack.drift import DriftReason, NodeDrift, find_drift
from upgrader.core.model.fleet import Snapshot, Target
from upgrader.core.model.prediction import Completion, Durations, Prediction
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.model.validation import find_missing_programs

__all__ = [
    "BatchForecast",
    "BatchKind",
    "BlockedReason",
    "Blocker",
    "Forecast",
    "GroupForecast",
    "Summary",
    "forecast_rollout",
]


class Summary(Struct, frozen=True, kw_only=True):
    """The forecast in numbers."""

    drifted: int = 0  # nodes that differ from the target and were not upgraded yet
    nodes: int = 0  # nodes in batches
    batches: int = 0
    interruptions: int = 0  # gangs that are stopped
    blocked: int = 0  # nodes blocked
    installs: int = 0  # nodes without a driver, which get it without a plan
    waiting_for_completion: int = 0  # nodes that are upgraded when their jobs have ended


class Forecast(Struct, frozen=True, kw_only=True):
    """What a rollout would do if it started now, and what it would leave out and why."""

    stack: str
    revision: str
    made_at: datetime
    summary: Summary
    batches: tuple[BatchForecast, ...]
    blockers: tuple[Blocker, ...]
    installs: tuple[str, ...]
    drift: tuple[NodeDrift, ...]
    gpus: int  # of the pool
    allowed: int  # the budget, in GPUs
    taken: int  # GPUs that are out of service already
    completions: tuple[Completion, ...] = ()
    prediction: Prediction = Prediction()

    @property
    def interrupted(self) -> frozenset[str]:
        """Gangs that are stopped."""
        return frozenset(gang for batch in self.batches for group in batch.groups for gang in group.gangs)


def forecast_rollout(
    snapshot: Snapshot,
    target: Target,
    strategy: StrategyFacts,
    *,
    now: datetime,
    already: frozenset[str] = frozenset(),
    stopped_gangs: frozenset[str] = frozenset(),
    remainder: Sequence[BatchForecast] = (),
    durations: Durations | None = None,
) -> Forecast:
    """Batches, completions and blockers of all nodes that are still to be upgraded, and the cost.

    `already`: nodes that this plan upgraded or is upgrading; they are neither upgraded again nor blocked.
    `stopped_gangs`: gangs that this plan has stopped; no gang is stopped twice.
    `remainder`: batches of the forecast before this one that were not started; their order is kept, unless another
    order is better (less loss or an earlier end, and neither worse).
    `durations`: durations on this stack; the defaults if none was measured.

    Raises:
        ConfigurationError: a budget is neither a number nor a percentage, a window has a time, day or zone that does
            not exist, or the stack has no program for a level of validation.
    """
    if missing := find_missing_programs(target, strategy.validation_levels):
        raise ConfigurationError("; ".join(missing))
    drifts = find_drift(snapshot, target)
    world = IndexedSnapshot.of(snapshot, target, strategy, drift=drifts, already=already, stopped_gangs=stopped_gangs)
    open_nodes = [node.node for node in drifts if node.drifted and node.node not in already]
    installs = [name for name in open_nodes if _installed_without_plan(world, name)]
    frame = _make_frame(world, GroupDurations(durations or Durations()), now)
    pool = frame.limits.pool
    parts = sort_out(build_groups((name for name in open_nodes if name not in installs), snapshot.gangs), frame)
    line = place_batches(legs_of(parts.free, remainder, frame), free_nodes(parts.completions, frame), course_of(frame))
    batches = batches_of(line, frame)
    blockers = sorted(
        [*parts.blockers, *late_blockers(line, frame)],
        key=lambda blocker: (blocker.reason, blocker.subject, blocker.nodes),
    )
    return Forecast(
        stack=target.stack,
        revision=target.revision,
        made_at=now,
        summary=_summarize_batches(
            batches, blockers, parts.completions, drifted=len(open_nodes), installs=len(installs)
        ),
        batches=batches,
        blockers=tuple(blockers),
        installs=tuple(installs),
        drift=drifts,
        gpus=pool.total,
        allowed=pool.allowed,
        taken=pool.taken,
        completions=parts.completions,
        prediction=_predict_rollout(line, parts.completions, frame, blocked=bool(blockers)),
    )


def _make_frame(world: IndexedSnapshot, pace: GroupDurations, now: datetime) -> Frame:
    snapshot, strategy = world.snapshot, world.strategy
    pool = pool_availability(
        snapshot.nodes, strategy.max_unavailable, broken=world.broken, elsewhere=snapshot.foreign_unavailable_gpus
    )
    return frame_of(world, pool_capacity(snapshot.nodes, pool, strategy), pace, now)


def _summarize_batches(
    batches: Sequence[BatchForecast],
    blockers: Sequence[Blocker],
    completions: Sequence[Completion],
    *,
    drifted: int,
    installs: int,
) -> Summary:
    return Summary(
        drifted=drifted,
        nodes=sum(len(batch.nodes) for batch in batches),
        batches=len(batches),
        interruptions=sum(len(group.gangs) for batch in batches for group in batch.groups),
        blocked=len({node for blocker in blockers for node in blocker.nodes}),
        installs=installs,
        waiting_for_completion=sum(len(completion.nodes) for completion in completions),
    )


def _installed_without_plan(world: IndexedSnapshot, name: str) -> bool:
    node = world.drift[name]
    bare = node.has(DriftReason.NOT_INSTALLED) or node.has(DriftReason.DRIVER_ABSENT)
    return bare and name not in world.occupied and not node_blockers(world, name)


def _predict_rollout(line: Timeline, completions: Sequence[Completion], frame: Frame, *, blocked: bool) -> Prediction:
    cost = rollout_losses(line.legs, completions, frame)
    likely, late = (
        predict_finish(line, free_nodes(completions, frame), course_of(frame), level) for level in (0.5, 0.95)
    )
    return Prediction(
        finish_p50=None if blocked else frame.time_at(likely),
        # Slower batches can end earlier, if more nodes are free by then and are upgraded together.
        finish_p95=None if blocked else frame.time_at(max(likely, late)),
        lost_gpu_hours=cost.lost,
        lower_bound_gpu_hours=cost.bound,
        interruptions=cost.interruptions,
        durations=frame.pace.durations,
    )
