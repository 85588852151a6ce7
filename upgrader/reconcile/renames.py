"""Nodes that are as a new revision asks already take its name, without a visit: nothing on them would change.

So nobody's job is stopped because a stack says where kubelets come from, how visits validate, or a version that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import NODES
from upgrader.core import upkeep
from upgrader.core.errors import ConflictError
from upgrader.core.fleet import NodeFacts
from upgrader.core.phases import ends
from upgrader.reconcile import marks
from upgrader.reconcile.context import Context
from upgrader.reconcile.rollbacks import away_from

if TYPE_CHECKING:
    from upgrader.reconcile.stacks import Read

log = structlog.get_logger()

AT_ONCE = 50
"""Nodes written in one step of a stack: visits come first, and their pauses are a second."""


async def take_names(context: Context, read: Read) -> bool:
    """Write the stack's revision on the nodes that only lack its name; whether some are left for the next step.

    None while a plan is under way, which places gangs by the names that it found, nor where one led away from it.

    Raises:
        ClusterError: the API server refused or did not answer; the step is made again.
    """
    if read.running is not None or away_from(read.plans, read.target.revision):
        return False
    visited = {one.spec.node.uid for one in read.upgrades if not ends(one.status.phase)}
    found = {one.node: one for one in read.drift}
    due = [
        node
        for node in read.snapshot.nodes
        if node.name in found and node.uid not in visited and upkeep.takes_name(node, found[node.name])
    ]
    for node in due[:AT_ONCE]:
        await _rename(context, node, read.target.revision)
    return len(due) > AT_ONCE


async def _rename(context: Context, node: NodeFacts, revision: str) -> None:
    fresh = await context.cluster.get(NODES, node.name)
    if fresh is None or not _as_seen(fresh, node):
        return
    context.leadership.check()
    try:
        await context.cluster.merge(NODES, fresh.metadata, marks.renamed(revision))
    except ConflictError as error:
        log.info("looks again", node=node.name, because=error.brief)
        return
    log.info("revision renamed", node=node.name, before=node.revision, revision=revision)


def _as_seen(fresh: Node, node: NodeFacts) -> bool:
    """Whether what was compared with the revision is on the node still, and nobody has taken it."""
    meta, info = fresh.metadata, fresh.status.node_info
    shows = [meta.labels.get(key, "") for key in (names.LABEL_DRIVER, names.LABEL_REVISION, names.LABEL_OPERANDS)]
    return (
        (meta.uid, info.boot_id, info.kernel_version) == (node.uid, node.boot_id, node.kernel)
        and shows == [node.driver_key, node.revision, node.operands]
        and names.ANNOTATION_VISIT not in meta.annotations
    )
