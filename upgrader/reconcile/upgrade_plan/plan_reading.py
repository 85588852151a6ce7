"""What one step of a plan looked at, as it was read: the inputs of all that is decided for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from upgrader.api.v1alpha1 import BatchStatus, CheckpointRequest, GpuStack, NodeUpgrade, UpgradePlan
from upgrader.core.constraints.blockers import World
from upgrader.core.forecast.forecast import Forecast
from upgrader.core.gpu_stack.drift import drift
from upgrader.core.model.fleet import Snapshot, Target
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.observe.durations import Past
from upgrader.reconcile.observe.stopped_gangs import stopped_gangs


@dataclass(frozen=True, kw_only=True)
class PlanReading:
    """Everything that one step of a plan looked at."""

    plan: UpgradePlan
    stack: GpuStack | None
    target: Target | None
    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]
    others: Sequence[UpgradePlan]
    past: Past
    """Node upgrades and requests that durations are learned from; its own are among them."""
    ignored: Sequence[CheckpointRequest] = ()
    """Requests with the plan's label that it did not make; never driven."""
    kept: frozenset[str] = frozenset()
    """Revisions that other plans of the stack wait to go to, and that exist; read while this one waits too."""
    snapshot: Snapshot | None = None
    forecast: Forecast | None = None
    problem: str = ""
    """Why no forecast can be made, where a person has to correct the plan."""
    cooling: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()
    """Nodes that carry, or are about to carry, the mark of waiting for their jobs' end."""

    @property
    def open_batch(self) -> BatchStatus | None:
        """The started batch that has not ended."""
        return next((one for one in self.plan.status.batches if one.ended_at is None), None)

    @cached_property
    def world(self) -> World | None:
        """What was read, for the rules: once for all groups of a batch."""
        return world_of(self)


def world_of(read: PlanReading) -> World | None:
    """What was read, indexed for the rules; None where it was not read whole."""
    if read.snapshot is None or read.target is None:
        return None
    return World.of(
        read.snapshot,
        read.target,
        strategy_of(read.plan, read.snapshot.taken_at),
        drift=drift(read.snapshot, read.target),
        already=frozenset(),
        stopped_gangs=stopped_gangs(read.plan, read.requests, read.snapshot),
    )
