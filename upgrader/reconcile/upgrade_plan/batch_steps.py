"""One step of each upgrade group of a plan's started batch; an error in one group does not stop the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import BatchStatus, CheckpointRequest, GroupStatus, NodeUpgrade
from upgrader.core.errors import REFUSED, ThrottledError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, is_final
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.naming import list_names
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_reconciler import Crowd
from upgrader.reconcile.upgrade_group.group_view import OpenGroup
from upgrader.reconcile.upgrade_plan import batches, revalidation
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading

log = structlog.get_logger()

_UNASKED = frozenset({NodePhase.PENDING, NodePhase.PREPARING, NodePhase.PREPARED})
_STOPPED = frozenset({RequestPhase.STOPPING, RequestPhase.STOPPED, RequestPhase.RESTARTING})
"""Phases in which the operator may have stopped a gang: objects that others write must not prevent its restart."""


AT_ONCE = 16
"""Upgrade groups that are stepped concurrently."""


@dataclass(kw_only=True)
class Drive:
    """One step of the upgrade groups of a plan."""

    context: Context
    faults: Faults
    crowd: Crowd
    driven: set[str] = field(default_factory=set)
    """Names of groups whose step was made."""

    async def step_begun_groups(self, read: PlanReading, *, undo: bool) -> None:
        """Step groups with stopped gangs, from their own objects only: before any read that may fail."""
        batch = read.open_batch
        if batch is None:
            return
        upgrades, requests = of_batch(read.upgrades, batch.number), of_batch(read.requests, batch.number)
        stopped = {request.spec.group for request in requests if request.status.phase in _STOPPED}
        groups = [group for group in batch.groups if group.name in stopped]
        await self._step_groups(read, batch, groups, upgrades, requests, turns=frozenset(), undo=undo)

    async def step_remaining_groups(self, read: PlanReading, *, undo: bool) -> None:
        """Create missing upgrades of the open batch, then step each group that was not stepped yet."""
        batch, plan = read.open_batch, read.plan
        if batch is None:
            return
        upgrades = of_batch(read.upgrades, batch.number)
        if not undo and read.stack is not None and read.target is not None and read.snapshot is not None:
            with self.faults.contained("upgrades to create"):
                there = (read.stack, read.target, batch, read.snapshot, upgrades)
                if await batches.create_upgrades(self.context, plan, *there, self.faults):
                    self.context.crash.reached(("UpgradePlan", PlanPhase.RUNNING.value, "after-act"))
                    selector = f"{names.LABEL_PLAN}={plan.metadata.name}"
                    upgrades = of_batch(await self.context.cluster.list(NODE_UPGRADES, labels=selector), batch.number)
        left = [group for group in batch.groups if group.name not in self.driven]
        turns: frozenset[str] | None = frozenset()  # if turns cannot be counted, no gang has one
        with self.faults.contained("slots of the lanes"):
            turns = await request_history.turns_now(self.context, self._read_strategy(read).lane_width)
        await self._step_groups(
            read, batch, left, upgrades, of_batch(read.requests, batch.number), turns=turns, undo=undo
        )

    async def _step_groups(
        self,
        read: PlanReading,
        batch: BatchStatus,
        groups: Sequence[GroupStatus],
        upgrades: Sequence[NodeUpgrade],
        requests: Sequence[CheckpointRequest],
        *,
        turns: frozenset[str] | None,
        undo: bool,
    ) -> None:
        async def step(group: GroupStatus) -> None:
            async def renew(after: OpenGroup) -> OpenGroup | None:
                if {upgrade.status.phase for upgrade in after.upgrades} == {NodePhase.PREPARED}:
                    return None  # whether the group may be opened is decided on a snapshot of the whole cluster
                known = (after.upgrades, after.requests)
                return await self._under_way(read, batch, group, *known, turns=turns, undo=undo)

            self.driven.add(group.name)
            group_upgrades = [upgrade for upgrade in upgrades if upgrade.spec.group == group.name]
            group_requests = [request for request in requests if request.spec.group == group.name]
            with self.faults.contained(f"upgrade group of {list_names(group.nodes)}"):
                under_way = await self._under_way(
                    read, batch, group, group_upgrades, group_requests, turns=turns, undo=undo
                )
                if under_way.open:
                    await group_reconciler.reconcile_group(self.context, under_way, self.faults, self.crowd, renew)

        await side_by_side.for_each(groups, step, AT_ONCE)

    async def _under_way(
        self,
        read: PlanReading,
        batch: BatchStatus,
        group: GroupStatus,
        upgrades: Sequence[NodeUpgrade],
        group_requests: Sequence[CheckpointRequest],
        *,
        turns: frozenset[str] | None,
        undo: bool,
    ) -> OpenGroup:
        strategy = self._read_strategy(read)
        gangs, refused = await _request_checkpoints(
            self.context, read, batch, group, upgrades, group_requests, undo=undo
        )
        return OpenGroup(
            name=group.name,
            resource=read.target.resource_name if read.target is not None else "",
            upgrades=upgrades,
            requests=group_requests,
            gangs=gangs,
            undo=undo,
            ask_until=batch.ask_until,
            revisions_left=read.plan.status.revisions_left,
            refused=refused,
            expendable=frozenset(strategy.expendable),
            turns=turns,
            lane_width=strategy.lane_width,
            shares={name: share.gpus for name, share in group.shares.items()},
            expendable_pods=_expendable_pods(group, strategy),
            waited_for=revalidation.waited_pods(read, upgrades),
        )

    def _read_strategy(self, read: PlanReading) -> StrategyFacts:
        return strategy_of(read.plan, self.context.clock.now())


def of_batch(objects: Sequence[Any], number: int) -> list[Any]:
    """Objects that belong to a batch."""
    return [item for item in objects if item.metadata.labels.get(LABEL_BATCH) == str(number)]


def all_ended(read: PlanReading) -> bool:
    """Whether every upgrade and request of the plan has ended."""
    return all(is_final(upgrade.status.phase) for upgrade in read.upgrades) and all(
        is_final(request.status.phase) for request in read.requests
    )


def _expendable_pods(group: GroupStatus, strategy: StrategyFacts) -> frozenset[str]:
    """Uids of pods that are evicted and not recreated; only while the approval names their gang."""
    return frozenset(uid for gang, uids in group.expendable.items() if gang in strategy.expendable for uid in uids)


async def _request_checkpoints(
    context: Context,
    read: PlanReading,
    batch: BatchStatus,
    group: GroupStatus,
    upgrades: Sequence[NodeUpgrade],
    group_requests: Sequence[CheckpointRequest],
    *,
    undo: bool,
) -> tuple[int, str]:
    """The number of gangs that must acknowledge before the group continues, and why they cannot be requested to.

    Gangs are requested when all nodes are prepared, and only if nothing blocks them then.
    """
    phases = {upgrade.status.phase for upgrade in upgrades}
    if undo or phases - _UNASKED:
        return len(group_requests), ""
    expected = max(len(group.gangs), len(group_requests))
    if phases != {NodePhase.PREPARED}:
        return expected, ""
    blocked = revalidation.find_group_blocker(read, group, group_requests) or await revalidation.without_upgrade(
        context, group, upgrades
    )
    if blocked or read.snapshot is None:
        return expected, blocked
    try:
        requests = read.requests
        return await batches.create_requests(
            context, read.plan, batch, group, read.snapshot, group_requests, requests
        ), ""
    except ThrottledError:
        raise
    except REFUSED as error:
        if not error.refused:
            log.info(
                "checkpoint not requested yet", group=group.name, because=error.brief
            )  # the group waits; askUntil bounds the wait
            return expected, ""
        log.warning("checkpoint not requested", group=group.name, because=error.brief, details=error.details)
        return expected, str(error)
