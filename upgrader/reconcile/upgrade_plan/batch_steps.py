"""One step of each group of a plan's started batch; what goes wrong with one keeps no other from its step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import BatchStatus, CheckpointRequest, GroupStatus, NodeUpgrade
from upgrader.core.errors import REFUSED, ThrottledError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, ends
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.naming import listed
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_reconciler import Crowd
from upgrader.reconcile.upgrade_group.group_view import UpgradeGroup
from upgrader.reconcile.upgrade_plan import batches, revalidation
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading

log = structlog.get_logger()

_UNASKED = frozenset({NodePhase.PENDING, NodePhase.PREPARING, NodePhase.PREPARED})
_STOPPED = frozenset({RequestPhase.STOPPING, RequestPhase.STOPPED, RequestPhase.RESTARTING})
"""Phases in which a gang may be stopped by us: nothing that others write may keep it from being restarted."""


AT_ONCE = 16
"""Groups that have their step at the same time."""


@dataclass(kw_only=True)
class Drive:
    """One step of the groups of a plan."""

    context: Context
    faults: Faults
    crowd: Crowd
    driven: set[str] = field(default_factory=set)
    """Names of groups that have had their step."""

    async def begun(self, read: PlanReading, *, undo: bool) -> None:
        """Groups with gangs that we stopped, from nothing but their own objects: before all that may fail is read."""
        batch = read.open_batch
        if batch is None:
            return
        upgrades, requests = of_batch(read.upgrades, batch.number), of_batch(read.requests, batch.number)
        stopped = {one.spec.group for one in requests if one.status.phase in _STOPPED}
        found = [one for one in batch.groups if one.name in stopped]
        await self._each(read, batch, found, upgrades, requests, turns=frozenset(), undo=undo)

    async def rest(self, read: PlanReading, *, undo: bool) -> None:
        """Make what is missing of the open batch, then one step of each group that has had none."""
        batch, plan = read.open_batch, read.plan
        if batch is None:
            return
        upgrades = of_batch(read.upgrades, batch.number)
        if not undo and read.stack is not None and read.target is not None and read.snapshot is not None:
            with self.faults.contained("upgrades to be made"):
                there = (read.stack, read.target, batch, read.snapshot, upgrades)
                if await batches.create_upgrades(self.context, plan, *there, self.faults):
                    self.context.crash.reached(("UpgradePlan", PlanPhase.RUNNING.value, "after-act"))
                    selector = f"{names.LABEL_PLAN}={plan.metadata.name}"
                    upgrades = of_batch(await self.context.cluster.list(NODE_UPGRADES, labels=selector), batch.number)
        left = [one for one in batch.groups if one.name not in self.driven]
        turns: frozenset[str] | None = frozenset()  # where they cannot be counted nobody has one
        with self.faults.contained("turns of the lanes"):
            turns = await request_history.turns_now(self.context, self._strategy(read).lane_width)
        await self._each(read, batch, left, upgrades, of_batch(read.requests, batch.number), turns=turns, undo=undo)

    async def _each(
        self,
        read: PlanReading,
        batch: BatchStatus,
        found: Sequence[GroupStatus],
        upgrades: Sequence[NodeUpgrade],
        requests: Sequence[CheckpointRequest],
        *,
        turns: frozenset[str] | None,
        undo: bool,
    ) -> None:
        async def step(group: GroupStatus) -> None:
            async def renew(after: UpgradeGroup) -> UpgradeGroup | None:
                if {one.status.phase for one in after.upgrades} == {NodePhase.PREPARED}:
                    return None  # whether it may be opened is decided with the whole cluster in view
                known = (after.upgrades, after.requests)
                return await self._under_way(read, batch, group, *known, turns=turns, undo=undo)

            self.driven.add(group.name)
            group_upgrades = [one for one in upgrades if one.spec.group == group.name]
            group_requests = [one for one in requests if one.spec.group == group.name]
            with self.faults.contained(f"upgrade group of {listed(group.nodes)}"):
                under_way = await self._under_way(
                    read, batch, group, group_upgrades, group_requests, turns=turns, undo=undo
                )
                if under_way.open:
                    await group_reconciler.go(self.context, under_way, self.faults, self.crowd, renew)

        await side_by_side.each(found, step, AT_ONCE)

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
    ) -> UpgradeGroup:
        strategy = self._strategy(read)
        gangs, refused = await _ask(self.context, read, batch, group, upgrades, group_requests, undo=undo)
        return UpgradeGroup(
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

    def _strategy(self, read: PlanReading) -> StrategyFacts:
        return strategy_of(read.plan, self.context.clock.now())


def of_batch(objects: Sequence[Any], number: int) -> list[Any]:
    """Those that a batch has made."""
    return [one for one in objects if one.metadata.labels.get(LABEL_BATCH) == str(number)]


def all_ended(read: PlanReading) -> bool:
    """Whether every upgrade and request of the plan is over."""
    return all(ends(one.status.phase) for one in read.upgrades) and all(ends(one.status.phase) for one in read.requests)


def _expendable_pods(group: GroupStatus, strategy: StrategyFacts) -> frozenset[str]:
    """Uids of pods that are evicted for good; only while the approval still names their gang."""
    return frozenset(uid for gang, uids in group.expendable.items() if gang in strategy.expendable for uid in uids)


async def _ask(
    context: Context,
    read: PlanReading,
    batch: BatchStatus,
    group: GroupStatus,
    upgrades: Sequence[NodeUpgrade],
    group_requests: Sequence[CheckpointRequest],
    *,
    undo: bool,
) -> tuple[int, str]:
    """How many gangs must have acknowledged before the group goes on, and why they cannot be asked.

    They are asked when all nodes are prepared, and only if nothing blocks them by then.
    """
    phases = {one.status.phase for one in upgrades}
    if undo or phases - _UNASKED:
        return len(group_requests), ""
    expected = max(len(group.gangs), len(group_requests))
    if phases != {NodePhase.PREPARED}:
        return expected, ""
    blocked = revalidation.blocked(read, group, group_requests) or await revalidation.without_upgrade(
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
            log.info("not asked yet", group=group.name, because=error.brief)  # doubt holds; askUntil bounds it
            return expected, ""
        log.warning("not asked", group=group.name, because=error.brief, details=error.details)
        return expected, str(error)
