"""Reservations of nodes that wait for completion of their jobs: a soft taint, removed with its plan (law 9).

The plan's status names a node before the taint is set and until it is removed, so a restart loses no reservation.
"""

from collections.abc import Iterable

import structlog

from upgrader.api.kubernetes import Node
from upgrader.api.resources import NODES, UPGRADE_PLANS
from upgrader.core.errors import ConfigurationError, ConflictError, NotFoundError
from upgrader.core.model.phases import PlanPhase
from upgrader.core.upgrade_plan.plan_machine import PlanDecision
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading

log = structlog.get_logger()


def nodes_to_reserve(read: PlanReading, decision: PlanDecision) -> frozenset[str]:
    """Nodes to reserve for a plan now; those of its started batch until their upgrade closes them."""
    if decision.phase is not PlanPhase.RUNNING:
        return frozenset()
    kept = frozenset(read.plan.status.reserved_nodes)
    if read.forecast is None:
        return kept
    starting = read.forecast.batches[0].nodes if decision.start_batch else ()
    return completing_nodes(read) | kept.intersection(starting)


def completing_nodes(read: PlanReading) -> frozenset[str]:
    """Nodes whose jobs all complete in time."""
    return (
        frozenset(node for completion in read.forecast.completions for node in completion.nodes)
        if read.forecast
        else frozenset()
    )


async def reserve_nodes(context: Context, plan: str, nodes: Iterable[str]) -> None:
    """Reserve nodes that the plan's status names; a node that cannot be written is reserved in a later step."""
    seen = context.nodes.snapshot() or {}
    for name in sorted(nodes):
        if name in seen and node_patches.reserved_by(seen[name]) != plan:
            await _write_reservation(context, name, plan)


async def release_reservations(context: Context, plan: str, nodes: Iterable[str]) -> frozenset[str]:
    """Remove the plan's reservations; returns the nodes where the removal must be retried."""
    return frozenset([name for name in sorted(nodes) if not await _write_reservation(context, name, plan, away=True)])


async def stale_reservations(context: Context, nodes: Iterable[Node]) -> dict[str, str]:
    """Nodes with reservations of deleted plans, and the plan: its finalizer was removed by force.

    Raises:
        ClusterError: the plans cannot be listed.
    """
    reserved = {node.metadata.name: plan for node in nodes if (plan := node_patches.reserved_by(node))}
    if not reserved:
        return {}
    known = {other.metadata.name for other in await context.cluster.list(UPGRADE_PLANS)}
    return {name: plan for name, plan in sorted(reserved.items()) if plan not in known}


async def release_stale_reservations(context: Context, nodes: Iterable[Node]) -> None:
    """Remove reservations of deleted plans."""
    for name, plan in (await stale_reservations(context, nodes)).items():
        await _write_reservation(context, name, plan, away=True)


async def release_reservation(context: Context, name: str, plan: str) -> None:
    """Remove the reservation of a plan, from the node's state at the API server.

    Raises:
        ClusterError: the node cannot be read or written.
    """
    node = await context.cluster.get(NODES, name)
    if node is not None and node_patches.reserved_by(node) == plan:
        context.leadership.check()
        await context.cluster.merge(NODES, node.metadata, node_patches.unreserve_node(node))


async def _write_reservation(context: Context, name: str, plan: str, *, away: bool = False) -> bool:
    """Set or remove a reservation, from the node's state at the API server; whether the node has the wanted state."""
    node = await context.cluster.get(NODES, name)
    if node is None:
        return True
    holder = node_patches.reserved_by(node)
    if (away and holder != plan) or (not away and holder):
        return away or holder == plan
    patch = node_patches.unreserve_node(node) if away else node_patches.reserve_node(node, plan)
    context.leadership.check()
    try:
        await context.cluster.merge(NODES, node.metadata, patch)
    except (ConflictError, NotFoundError, ConfigurationError) as error:
        log.info("conflict, requeued", node=name, because=error.brief)
        return False
    return True
