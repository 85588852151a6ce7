"""The inputs of one step of a plan, as they were read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from upgrader.api.v1alpha1 import BatchStatus, CheckpointRequest, GpuStack, NodeUpgrade, UpgradePlan
from upgrader.core.constraints.blockers import IndexedSnapshot
from upgrader.core.forecast.forecast import Forecast
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.core.model.fleet import Snapshot, Target
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.observe.durations import UpgradeHistory
from upgrader.reconcile.observe.stopped_gangs import stopped_gangs


@dataclass(frozen=True, kw_only=True)
class PlanReading:
    """All inputs of one step of a plan."""

    plan: UpgradePlan
    stack: GpuStack | None
    target: Target | None
    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]
    others: Sequence[UpgradePlan]
    past: UpgradeHistory
    """Node upgrades and requests that durations are learned from, including the plan's own."""
    ignored: Sequence[CheckpointRequest] = ()
    """Requests with the plan's label that the plan did not create; they are never reconciled."""
    kept: frozenset[str] = frozenset()
    """Existing revisions that other proposed plans of the stack target; read while this plan is proposed."""
    snapshot: Snapshot | None = None
    forecast: Forecast | None = None
    problem: str = ""
    """Why no forecast can be created, if a user has to correct the plan."""
    cooling: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()
    """Nodes that have, or are about to get, the reservation taint while the plan waits for their jobs."""

    @property
    def open_batch(self) -> BatchStatus | None:
        """The started batch that has not ended yet."""
        return next((batch for batch in self.plan.status.batches if batch.ended_at is None), None)

    @cached_property
    def world(self) -> IndexedSnapshot | None:
        """The index for the rules, built once for all groups of a batch."""
        return world_of(self)


def world_of(read: PlanReading) -> IndexedSnapshot | None:
    """The inputs indexed for the rules; None if snapshot or target is missing."""
    if read.snapshot is None or read.target is None:
        return None
    return IndexedSnapshot.of(
        read.snapshot,
        read.target,
        strategy_of(read.plan, read.snapshot.taken_at),
        drift=find_drift(read.snapshot, read.target),
        already=frozenset(),
        stopped_gangs=stopped_gangs(read.plan, read.requests, read.snapshot),
    )
