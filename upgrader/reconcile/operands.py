"""The DaemonSets of a stack: kept for every key that a node's label or a visit names, removed when nothing does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import DaemonSet
from upgrader.api.resources import DAEMONSETS
from upgrader.api.v1alpha1 import DriftCount
from upgrader.core.drift import NodeDrift
from upgrader.core.phases import ends
from upgrader.reconcile.context import Context
from upgrader.reconcile.node_features import AUTO
from upgrader.stack.naming import NODE_FEATURES

if TYPE_CHECKING:
    from upgrader.reconcile.stacks import Read

log = structlog.get_logger()

SHOWN = 10


def drift_counts(found: Sequence[NodeDrift]) -> list[DriftCount]:
    """Drift by reason with the first ten names, the most frequent first."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for one in found:
        for finding in one.findings:
            if finding.counts:
                by_reason[finding.reason.value].append(one.node)
    return [
        DriftCount(reason=reason, nodes=len(nodes), names=sorted(nodes)[:SHOWN])
        for reason, nodes in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _unasked(one: DaemonSet, read: Read) -> bool:
    """Whether it reads features of nodes for labels that the stack no longer writes."""
    ours = one.metadata.labels.get(names.LABEL_COMPONENT) == NODE_FEATURES
    return ours and read.stack.spec.node_features != AUTO


async def sweep(context: Context, read: Read) -> None:
    """Remove DaemonSets of this stack that no node, no visit under way and no present revision needs."""
    if read.running is not None:
        return
    selector = f"{names.LABEL_STACK}={read.stack.metadata.name}"
    present = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=selector)
    needed = {node.driver_key for node in read.snapshot.nodes} | {node.plugin_key for node in read.snapshot.nodes}
    for visit in read.upgrades:
        if not ends(visit.status.phase):
            for state in (visit.spec.source, visit.spec.target):
                needed |= {state.driver_key, state.plugin_key}
    for one in present:
        key = one.metadata.labels.get(names.LABEL_IMAGE_KEY, "")
        if (key and key not in needed and one.status.desired_number_scheduled == 0) or _unasked(one, read):
            context.leadership.check()
            log.info("operand removed", name=one.metadata.name)
            await context.cluster.delete(DAEMONSETS, one.metadata)
