"""The DaemonSets of a stack: kept for every key that a node's label or a node upgrade names, removed when nothing does.

One that somebody removed under nodes that need it is made again; those of a stack that is gone go in reverse order.
"""

from collections import defaultdict
from collections.abc import Sequence

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import DaemonSet
from upgrader.api.resources import DAEMONSETS, GPU_STACKS
from upgrader.api.v1alpha1 import DriftCount
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.model.operands import COMPONENTS, Operand
from upgrader.core.model.phases import ends
from upgrader.core.model.revisions import plugin_key_of, runtime_key_of
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.revisions import read_target
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import daemonsets, gpu_features, nondisruptive_operands, scraping
from upgrader.reconcile.operands.node_features import AUTO
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.naming import NODE_FEATURES

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


def _unasked(one: DaemonSet, read: StackReading) -> bool:
    """Whether it reads features of nodes for labels that the stack no longer writes."""
    ours = one.metadata.labels.get(names.LABEL_COMPONENT) == NODE_FEATURES
    return ours and read.stack.spec.node_features != AUTO


async def sweep(context: Context, read: StackReading) -> None:
    """Remove DaemonSets of this stack that no node, no upgrade under way and no present revision needs; mend others."""
    selector = f"{names.LABEL_STACK}={read.stack.metadata.name}"
    present = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=selector)
    await _mend(context, read, {_key(one) for one in present})
    if read.running is not None:
        return
    needed = {key for node in read.snapshot.nodes for key in (node.driver_key, node.runtime_key, node.plugin_key)}
    for upgrade in read.upgrades:
        if not ends(upgrade.status.phase):
            for state in (upgrade.spec.source, upgrade.spec.target):
                needed |= {state.driver_key, state.runtime_key, state.plugin_key}
    for one in present:
        unneeded = _key(one) and _key(one) not in needed and one.status.desired_number_scheduled == 0
        if unneeded or _unasked(one, read) or nondisruptive_operands.unasked(one, read):
            await _remove(context, one)


async def _mend(context: Context, read: StackReading, present: set[str]) -> None:
    """Make the DaemonSets again that nodes in service need and that are not there, from the nodes' own revisions."""
    catalogue = Catalogue(read.snapshot.images)
    seen: set[tuple[str, ...]] = set()
    for node in read.snapshot.nodes:
        keys = (node.driver_key, node.runtime_key, node.plugin_key)
        image = catalogue.of(node)
        if image is None or not node.revision or keys in seen or present.issuperset(filter(None, keys)):
            continue
        seen.add(keys)
        target = read.target
        if node.revision != target.revision:
            target = await read_target(context, read.stack.metadata.name, node.revision) or target
        if (runtime_key_of(target), plugin_key_of(target)) == keys[1:]:
            await daemonsets.ensure(context, read.stack, target, image)


async def leave(context: Context, stack: str) -> float | None:
    """Remove the operands of a stack that is gone, the last of the order first; seconds to the next look.

    None when none is left. What nodes of another stack still need stays for as long as they need it. Nothing is
    unloaded by this: a driver stays as it is loaded, with its label, until a node upgrade or a reboot.
    """
    selector = f"{names.LABEL_STACK}={stack}"
    present = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=selector)
    needed = await _needed_elsewhere(context, stack)
    going = [one for one in present if _key(one) not in needed]
    for operand in reversed(Operand):
        mine = [one for one in going if _operand(one) is operand]
        for one in mine:
            if one.metadata.deletion_timestamp is None:
                await _remove(context, one)
        if mine:
            return context.active_seconds  # those before it go when it is gone
    return context.idle_seconds if present else None


async def _needed_elsewhere(context: Context, stack: str) -> set[str]:
    """Keys on nodes that another stack selects: a DaemonSet may serve both, whoever made it."""
    stacks = [one for one in await context.cluster.list(GPU_STACKS) if one.metadata.name != stack]
    nodes = (context.nodes.snapshot() or {}).values()
    kept = [node for node in nodes if any(cluster_snapshot.in_pool(node, one.spec) for one in stacks)]
    labels = (names.LABEL_DRIVER, names.LABEL_RUNTIME, names.LABEL_DEVICE_PLUGIN)
    return {node.metadata.labels.get(label, "") for node in kept for label in labels} - {""}


async def _remove(context: Context, one: DaemonSet) -> None:
    if _operand(one) is Operand.MONITORING:  # before it: what is left of an operand is found by its DaemonSet
        await scraping.leave(context, one.metadata.labels[names.LABEL_STACK])
    if _operand(one) is Operand.FEATURE_DISCOVERY and not await gpu_features.leave(
        context, one.metadata.labels[names.LABEL_STACK]
    ):
        return  # looked at again in the next step
    context.leadership.check()
    log.info("operand removed", name=one.metadata.name)
    await context.cluster.delete(DAEMONSETS, one.metadata)


def _key(one: DaemonSet) -> str:
    return one.metadata.labels.get(names.LABEL_IMAGE_KEY, "")


def _operand(one: DaemonSet) -> Operand | None:
    return COMPONENTS.get(one.metadata.labels.get(names.LABEL_COMPONENT, ""))
