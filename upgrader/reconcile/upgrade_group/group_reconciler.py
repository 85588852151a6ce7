"""One step of everything that is under way: reads the upgrades and requests of each group, decides, acts, records.

A group that only waits, as far as watches show, costs no request. Before anything is done all is read anew; what a
conflict shows as outdated is left to the next step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import structlog

from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core.checkpoint_request.request_machine import OVER, RESTARTED_EARLY
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError
from upgrader.core.model.phases import NodePhase, RequestPhase, ends
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import GroupView, NodeView, kept
from upgrader.core.workloads import placement
from upgrader.reconcile.checkpoint_request import request_status
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest
from upgrader.reconcile.checkpoint_request.request_reconciler import Advanced, advance
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.node_upgrade import upgrade_actions
from upgrader.reconcile.node_upgrade.upgrade_actions import perform
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import early_restart, waiting
from upgrader.reconcile.upgrade_group.group_view import (
    NODES_AT_ONCE,
    Seen,
    UpgradeGroup,
    around,
    grown,
    note_refusal,
    read_nodes,
    read_requests,
    unready,
    view_group,
)

log = structlog.get_logger()


@dataclass(kw_only=True)
class Crowd:
    """What the groups of one step share: one gang at a time is placed on free nodes."""

    taken: bool
    """Whether a gang of the plan is being placed already: another must not count on the same free nodes."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Groups have their steps side by side: one looks for free nodes, and records that, before another looks."""


Renew = Callable[[UpgradeGroup], Awaitable[UpgradeGroup | None]]


async def go(context: Context, group: UpgradeGroup, faults: Faults, crowd: Crowd, renew: Renew | None = None) -> None:
    """Steps of one group, for as long as each leads to another phase: what need not wait does not.

    Args:
        context: ports.
        group: under way.
        faults: what goes wrong with one gang or node is noted there; the others have their steps.
        crowd: what the groups of this look share.
        renew: gives the group anew once its upgrades and requests are in other phases, or None where that takes
            the next look; without it only they change.
    """
    for _ in range(context.steps_at_once):
        after = await _step(context, group, faults, crowd)
        if after is None or not after.open or _phases(after) == _phases(group):
            return
        renewed = await renew(after) if renew is not None else after
        if renewed is None:
            return
        group = renewed


def _phases(group: UpgradeGroup) -> tuple[list[NodePhase], list[RequestPhase]]:
    return [one.status.phase for one in group.upgrades], [one.status.phase for one in group.requests]


async def _step(context: Context, group: UpgradeGroup, faults: Faults, crowd: Crowd) -> UpgradeGroup | None:
    """One step: gangs first, so that nodes see what became of them in the next one.

    The group as it was written; None where something of it has to be read again first, or all of it waits.
    """
    live_requests = await read_requests(context, group, faults)
    if await waiting.only_waits(context, group, live_requests, crowded=crowd.taken):
        return None
    seen = await read_nodes(context, group, faults, context.cluster)
    refusals = unready(context, group, live_requests, seen)
    requests: dict[str, CheckpointRequest | None] = {one.metadata.name: one for one in group.requests}
    for name, live in live_requests.items():
        if not ends(live.view.phase):
            # All or none: where a fellow cannot be stopped there is no upgrade, and no gang is stopped in vain.
            forbidden = next((why for fellow, why in refusals.items() if fellow != name and why), "")
            advanced = None
            waits = live.view.phase is RequestPhase.STOPPED and not group.undo
            with faults.contained(live.view.gang):
                async with crowd.gate if waits else nullcontext():
                    advanced = await _step_gang(context, group, live, seen, crowd, forbidden=forbidden)
            requests[name] = advanced.request if advanced is not None else None
            if advanced is None:
                refusals[name] = f"{live.view.gang} is looked at again"
    facts = view_group(group, live_requests, seen)
    upgrades: dict[str, NodeUpgrade | None] = {one.metadata.name: one for one in group.upgrades}

    async def walk(walker: tuple[NodeUpgrade, NodeView]) -> None:
        upgrade, view = walker
        if not ends(view.phase):
            upgrades[view.name] = None
            with faults.contained(f"node {upgrade.spec.node.name}"):
                if view.name not in seen.unread:
                    upgrades[view.name] = await _walk(context, group, upgrade, view, facts)

    await side_by_side.each(zip(group.upgrades, seen.views, strict=True), walk, NODES_AT_ONCE)
    if None in (*upgrades.values(), *requests.values()):
        return None
    return replace(
        group,
        upgrades=[one for one in upgrades.values() if one is not None],
        requests=[one for one in requests.values() if one is not None],
    )


async def _step_gang(
    context: Context,
    group: UpgradeGroup,
    live: LiveRequest,
    seen: Seen,
    crowd: Crowd,
    *,
    forbidden: str,
) -> Advanced | None:
    """One step with one gang; None where it was refused, or something changed meanwhile."""
    waits = live.view.phase is RequestPhase.STOPPED and not crowd.taken and not group.undo
    beside = msgspec.structs.replace(
        around(group, seen),
        siblings=tuple(one.status.phase for one in group.requests if one.metadata.name != live.view.name),
        forbidden=forbidden,
        grown=grown(context, group, live),
        spares=waits and await early_restart.enough(context, live.request, live.owner, group.upgrades, group.resource),
    )
    placing = partial(where, context, group, seen.views, ahead=live.request.status.restarted_early)
    try:
        advanced = await advance(
            context, live, beside, where=placing, ask_until=group.ask_until, lane_width=group.lane_width
        )
    except (ConflictError, NotFoundError) as error:
        log.info("conflict, requeued", request=live.view.name, because=error.brief)
        return None
    except REFUSED as error:
        await note_refusal(error, live.view.name, partial(request_status.record_refusal, context, live.request, error))
        return None
    decision = advanced.decision
    if decision.phase is not live.view.phase:
        log.info(
            "phase of a checkpoint request", gang=live.view.gang, phase=decision.phase.value, message=decision.message
        )
    crowd.taken |= decision.reason == RESTARTED_EARLY
    return advanced


def where(
    context: Context, group: UpgradeGroup, views: Sequence[NodeView], *, ahead: bool = False
) -> placement.Placement:
    """Where a gang of this group may be restarted: on the old revisions or on the new one, never on both.

    After the upgrades: on its own nodes, whose taint it tolerates, and on others of their revision; NotIn also matches
    a node whose label comes when it is given back. Before they are over, or where a node is kept: on nodes in service;
    `ahead`: on those of the target revision only.
    """
    if ahead:
        return placement.Placement(left_behind=tuple(group.revisions_left), settled=True)
    there = [view for view in views if view.phase is not NodePhase.NODE_DELETED]
    left = tuple(group.revisions_left)
    targets = {one.spec.target.revision for one in group.upgrades}
    if any(view.phase not in OVER and view.phase not in upgrade_machine.BEFORE_OFF for view in there):
        known = (*sorted(targets), *left)
        nodes = [node_facts(one, group.resource) for one in (context.nodes.snapshot() or {}).values()]
        # Where nothing is free, it is what its own nodes are on their way to.
        chosen = placement.refuge(nodes, known) or ((left[:1] if there[0].reverting else sorted(targets)) or ("",))[0]
        return placement.Placement(left_behind=tuple(one for one in known if one != chosen), settled=True)
    forward = all(view.phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED} and not view.failure for view in there)
    here = "" if any(kept(view) for view in there) else group.name
    return placement.Placement(left_behind=left if forward else tuple(sorted(targets)), group=here)


async def _walk(
    context: Context, group: UpgradeGroup, upgrade: NodeUpgrade, view: NodeView, facts: GroupView
) -> NodeUpgrade | None:
    """One step of one upgrade, as it was written then; None where it was refused, or something changed meanwhile."""
    decision = upgrade_machine.decide(view, facts, context.clock.now())
    try:
        written = await perform(context, upgrade, view, decision, group.ask_until)
    except (ConflictError, NotFoundError) as error:
        log.info("conflict, requeued", upgrade=view.name, because=error.brief)
        return None
    except REFUSED as error:
        await note_refusal(error, view.name, partial(upgrade_actions.record_refusal, context, upgrade, error))
        return None
    if decision.phase is not view.phase:
        log.info(
            "upgrade",
            node=upgrade.spec.node.name,
            phase=decision.phase.value,
            message=decision.message,
            failure=decision.failure,
        )
    return written
