"""`upgrader adopt`: a user hands over nodes that another operator manages; their next upgrade takes them over.

A node whose upgrades failed waits for the same command.
"""

from collections.abc import Sequence

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES, NODES
from upgrader.cli.shared import consent
from upgrader.core import timing
from upgrader.core.errors import ConfigurationError, ConflictError
from upgrader.core.gpu_stack.adoption import AdoptionConsent, foreign_labels, still_over
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.reconcile.gpu_stack.unplanned_upgrades import latest_ended_upgrade
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context


async def adopt_nodes(context: Context, nodes: Sequence[str], stack: str | None, *, by: str | None) -> list[str]:
    """Write the consent on each node; returns a sentence for each node, sorted by name.

    Raises:
        ConfigurationError: the node or stack does not exist, or no stack selects the node.
    """
    node_objects = (
        await _list_stack_nodes(context, stack)
        if stack is not None
        else [await _read_node(context, name) for name in nodes]
    )
    who = by or consent.current_user()
    return [await _hand_over(context, node, who) for node in sorted(node_objects, key=lambda node: node.metadata.name)]


async def _list_stack_nodes(context: Context, name: str) -> list[Node]:
    """The nodes of a stack that another operator manages."""
    stack = await context.cluster.get(GPU_STACKS, name)
    if stack is None:
        raise ConfigurationError(f"stack {name} not found", resolution="`upgrader status` lists all stacks.")
    pool = [node for node in await context.cluster.list(NODES) if cluster_snapshot.in_pool(node, stack.spec)]
    foreign = [node for node in pool if foreign_labels(node.metadata.labels)]
    if not foreign:
        raise ConfigurationError(f"another operator does not manage any of the {len(pool)} nodes of stack {name}")
    return foreign


async def _read_node(context: Context, name: str) -> Node:
    node = await context.cluster.get(NODES, name)
    if node is None:
        raise ConfigurationError(f"node {name} not found")
    if not any(cluster_snapshot.in_pool(node, stack.spec) for stack in await context.cluster.list(GPU_STACKS)):
        raise ConfigurationError(
            f"no stack selects node {name}",
            resolution="First set the labels of the nodeSelector of a stack on the node.",
        )
    return node


async def _hand_over(context: Context, node: Node, by: str) -> str:
    name = node.metadata.name
    for attempt in range(1, consent.ATTEMPTS + 1):
        labels, again = foreign_labels(node.metadata.labels), names.ANNOTATION_ADOPT in node.metadata.annotations
        if again and not (labels and await _has_failed(context, node)):
            return f"node {name} is already handed over"
        if not labels:
            return f"node {name} is not managed by another operator; nothing to hand over"
        word = msgspec.json.encode(AdoptionConsent(by=by, at=timing.format_time(context.clock.now()))).decode()
        # Values that an earlier installation stored count only for labels that still have the value that it set.
        kept = still_over(node.metadata.labels, node.metadata.annotations.get(names.ANNOTATION_ADOPTED))
        words = {names.ANNOTATION_ADOPT: word, names.ANNOTATION_ADOPTED: kept}
        try:
            await context.cluster.merge(NODES, node.metadata, {"metadata": {"annotations": words}})
        except ConflictError:
            if attempt == consent.ATTEMPTS:
                raise
            node = await _read_node(context, name)
        else:
            how = "again " if again else ""
            return f"node {name} is handed over {how}by {by}; its first upgrade sets {' and '.join(labels)} to false"
    raise AssertionError("the last attempt returns or raises")


async def _has_failed(context: Context, node: Node) -> bool:
    """Whether the last upgrade that a stack created for a node failed, and none is in progress: a new consent starts
    the next one without a pause.
    """
    upgrades = [
        upgrade
        for upgrade in await context.cluster.list(NODE_UPGRADES)
        if upgrade.spec.plan is None and upgrade.spec.node.uid == node.metadata.uid
    ]
    last = latest_ended_upgrade(upgrades)
    in_progress = any(not is_final(upgrade.status.phase) for upgrade in upgrades)
    return last is not None and last.status.phase is NodePhase.FAILED and not in_progress
