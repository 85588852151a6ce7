"""Reconciler of upgrade groups: reads the upgrades and requests of a group, decides, acts, records.

A group that only waits, as far as watches show, costs no request. Before an act everything is read again; after a
conflict the next step continues.
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
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import GroupView, NodeView, is_left_on_node
from upgrader.core.workloads import placement
from upgrader.reconcile.checkpoint_request import request_status
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest
from upgrader.reconcile.checkpoint_request.request_reconciler import RequestStep, advance_request
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.node_upgrade import upgrade_actions
from upgrader.reconcile.node_upgrade.upgrade_actions import perform_decision
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import early_restart, waiting
from upgrader.reconcile.upgrade_group.group_view import (
    NODES_AT_ONCE,
    GroupNodes,
    OpenGroup,
    gang_growth,
    group_of_gang,
    note_refusal,
    read_nodes,
    read_requests,
    unready_gangs,
    view_group,
)

log = structlog.get_logger()


@dataclass(kw_only=True)
class Crowd:
    """State that the groups of one step share: one gang at a time is placed on idle nodes."""

    taken: bool
    """Whether a gang of the plan is being placed: another gang must not use the same idle nodes."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serializes the search of concurrent groups for idle nodes, including its record."""


Renew = Callable[[OpenGroup], Awaitable[OpenGroup | None]]


async def reconcile_group(
    context: Context, group: OpenGroup, faults: Faults, crowd: Crowd, renew: Renew | None = None
) -> None:
    """Step one group repeatedly, as long as each step changes a phase.

    Args:
        context: ports.
        group: an open group.
        faults: collects errors of single gangs and nodes; the others are stepped.
        crowd: state shared by the groups of this step.
        renew: gives the group with its upgrades and requests in new phases, or None if that needs the next step of
            the plan; without it only upgrades and requests change.
    """
    for _ in range(context.steps_at_once):
        after = await _step_group(context, group, faults, crowd)
        if after is None or not after.open or _group_phases(after) == _group_phases(group):
            return
        renewed = await renew(after) if renew is not None else after
        if renewed is None:
            return
        group = renewed


def _group_phases(group: OpenGroup) -> tuple[list[NodePhase], list[RequestPhase]]:
    return [upgrade.status.phase for upgrade in group.upgrades], [request.status.phase for request in group.requests]


async def _step_group(context: Context, group: OpenGroup, faults: Faults, crowd: Crowd) -> OpenGroup | None:
    """One step: gangs first, so that the next step of the nodes reads their new phases.

    Returns the group as written; None if part of it must be read again first, or all of it waits.
    """
    live_requests = await read_requests(context, group, faults)
    if await waiting.only_waits(context, group, live_requests, crowded=crowd.taken):
        return None
    seen = await read_nodes(context, group, faults, context.cluster)
    refusals = unready_gangs(context, group, live_requests, seen)
    requests: dict[str, CheckpointRequest | None] = {request.metadata.name: request for request in group.requests}
    for name, live in live_requests.items():
        if not is_final(live.view.phase):
            # All or none: if one gang cannot be stopped there is no upgrade, so no other gang is stopped either.
            forbidden = next((why for fellow, why in refusals.items() if fellow != name and why), "")
            advanced = None
            waits = live.view.phase is RequestPhase.STOPPED and not group.undo
            with faults.contained(live.view.gang):
                async with crowd.gate if waits else nullcontext():
                    advanced = await _step_gang(context, group, live, seen, crowd, forbidden=forbidden)
            requests[name] = advanced.request if advanced is not None else None
            if advanced is None:
                refusals[name] = f"{live.view.gang} is read again in the next step"
    facts = view_group(group, live_requests, seen)
    upgrades: dict[str, NodeUpgrade | None] = {upgrade.metadata.name: upgrade for upgrade in group.upgrades}

    async def walk(walker: tuple[NodeUpgrade, NodeView]) -> None:
        upgrade, view = walker
        if not is_final(view.phase):
            upgrades[view.name] = None
            with faults.contained(f"node {upgrade.spec.node.name}"):
                if view.name not in seen.unread:
                    upgrades[view.name] = await _step_upgrade(context, group, upgrade, view, facts)

    await side_by_side.for_each(zip(group.upgrades, seen.views, strict=True), walk, NODES_AT_ONCE)
    if None in (*upgrades.values(), *requests.values()):
        return None
    return replace(
        group,
        upgrades=[written for written in upgrades.values() if written is not None],
        requests=[request for request in requests.values() if request is not None],
    )


async def _step_gang(
    context: Context,
    group: OpenGroup,
    live: LiveRequest,
    seen: GroupNodes,
    crowd: Crowd,
    *,
    forbidden: str,
) -> RequestStep | None:
    """Step one gang; None after a refusal or a conflict."""
    waits = live.view.phase is RequestPhase.STOPPED and not crowd.taken and not group.undo
    beside = msgspec.structs.replace(
        group_of_gang(group, seen),
        siblings=tuple(request.status.phase for request in group.requests if request.metadata.name != live.view.name),
        forbidden=forbidden,
        grown=gang_growth(context, group, live),
        spares=waits
        and await early_restart.fits_idle_nodes(context, live.request, live.owner, group.upgrades, group.resource),
    )
    placing = partial(allowed_placement, context, group, seen.views, ahead=live.request.status.restarted_early)
    try:
        advanced = await advance_request(
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
            "checkpoint request changed its phase",
            gang=live.view.gang,
            phase=decision.phase.value,
            message=decision.message,
        )
    crowd.taken |= decision.reason == RESTARTED_EARLY
    return advanced


def allowed_placement(
    context: Context, group: OpenGroup, views: Sequence[NodeView], *, ahead: bool = False
) -> placement.Placement:
    """Placement of a restarted gang of this group: on old revisions or on the new one, never on both.

    After the upgrades: on its own nodes, whose taint it tolerates, and on others of their revision; NotIn also matches
    a node whose label is set at its release. Before their end, or if a node is kept: on nodes in service; `ahead`: only
    on nodes of the target revision.
    """
    if ahead:
        return placement.Placement(left_behind=tuple(group.revisions_left), settled=True)
    there = [view for view in views if view.phase is not NodePhase.NODE_DELETED]
    left = tuple(group.revisions_left)
    targets = {upgrade.spec.target.revision for upgrade in group.upgrades}
    if any(view.phase not in OVER and view.phase not in upgrade_machine.BEFORE_OFF for view in there):
        known = (*sorted(targets), *left)
        nodes = [node_facts(node, group.resource) for node in (context.nodes.snapshot() or {}).values()]
        # If no node is free, the revision that its own nodes will have.
        chosen = (
            placement.refuge_revision(nodes, known)
            or ((left[:1] if there[0].reverting else sorted(targets)) or ("",))[0]
        )
        return placement.Placement(left_behind=tuple(target for target in known if target != chosen), settled=True)
    forward = all(view.phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED} and not view.failure for view in there)
    here = "" if any(is_left_on_node(view) for view in there) else group.name
    return placement.Placement(left_behind=left if forward else tuple(sorted(targets)), group=here)


async def _step_upgrade(
    context: Context, group: OpenGroup, upgrade: NodeUpgrade, view: NodeView, facts: GroupView
) -> NodeUpgrade | None:
    """Step one upgrade; returns it as written, None after a refusal or a conflict."""
    decision = upgrade_machine.decide(view, facts, context.clock.now())
    try:
        written = await perform_decision(context, upgrade, view, decision, group.ask_until)
    except (ConflictError, NotFoundError) as error:
        log.info("conflict, requeued", upgrade=view.name, because=error.brief)
        return None
    except REFUSED as error:
        await note_refusal(error, view.name, partial(upgrade_actions.record_refusal, context, upgrade, error))
        return None
    if decision.phase is not view.phase:
        log.info(
            "node upgrade changed its phase",
            node=upgrade.spec.node.name,
            phase=decision.phase.value,
            message=decision.message,
            failure=decision.failure,
        )
    return written
