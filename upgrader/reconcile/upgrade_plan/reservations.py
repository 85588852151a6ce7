"""Nodes that wait for the natural end of their jobs: a soft mark keeps others away, and goes with its plan (law 9).

The plan's status names the nodes before they are marked, and until they are not: a restart between the two loses none.
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


def wanted(read: PlanReading, decision: PlanDecision) -> frozenset[str]:
    """Nodes that are kept free for a plan now; those of its started batch until their upgrade closes them."""
    if decision.phase is not PlanPhase.RUNNING:
        return frozenset()
    kept = frozenset(read.plan.status.reserved_nodes)
    if read.forecast is None:
        return kept
    starting = read.forecast.batches[0].nodes if decision.start_batch else ()
    return ripening(read) | kept.intersection(starting)


def ripening(read: PlanReading) -> frozenset[str]:
    """Nodes whose jobs all end by themselves in time."""
    return frozenset(node for one in read.forecast.completions for node in one.nodes) if read.forecast else frozenset()


async def mark(context: Context, plan: str, nodes: Iterable[str]) -> None:
    """Mark nodes that the plan's status names; what cannot be marked now is marked in a later step."""
    seen = context.nodes.snapshot() or {}
    for name in sorted(nodes):
        if name in seen and node_patches.reserved_by(seen[name]) != plan:
            await _write(context, name, plan)


async def let_go(context: Context, plan: str, nodes: Iterable[str]) -> frozenset[str]:
    """Take the plan's marks away; gives the nodes where that has to be tried again."""
    return frozenset([name for name in sorted(nodes) if not await _write(context, name, plan, away=True)])


async def stale(context: Context, nodes: Iterable[Node]) -> dict[str, str]:
    """Nodes with marks of plans that are no more, and the plan: somebody took the finalizer away that kept them.

    Raises:
        ClusterError: the plans cannot be listed: nothing is known.
    """
    marked = {node.metadata.name: plan for node in nodes if (plan := node_patches.reserved_by(node))}
    if not marked:
        return {}
    known = {one.metadata.name for one in await context.cluster.list(UPGRADE_PLANS)}
    return {name: plan for name, plan in sorted(marked.items()) if plan not in known}


async def sweep(context: Context, nodes: Iterable[Node]) -> None:
    """Take marks of plans away that are no more."""
    for name, plan in (await stale(context, nodes)).items():
        await _write(context, name, plan, away=True)


async def unmark(context: Context, name: str, plan: str) -> None:
    """Take the mark of a plan away, from the node's state at the API server.

    Raises:
        ClusterError: the node cannot be read or written.
    """
    node = await context.cluster.get(NODES, name)
    if node is not None and node_patches.reserved_by(node) == plan:
        context.leadership.check()
        await context.cluster.merge(NODES, node.metadata, node_patches.unreserve(node))


async def _write(context: Context, name: str, plan: str, *, away: bool = False) -> bool:
    """Whether the node is as it should be now, from its state at the API server."""
    node = await context.cluster.get(NODES, name)
    if node is None:
        return True
    holder = node_patches.reserved_by(node)
    if (away and holder != plan) or (not away and holder):
        return away or holder == plan
    patch = node_patches.unreserve(node) if away else node_patches.reserve(node, plan)
    context.leadership.check()
    try:
        await context.cluster.merge(NODES, node.metadata, patch)
    except (ConflictError, NotFoundError, ConfigurationError) as error:
        log.info("conflict, requeued", node=name, because=error.brief)
        return False
    return True
