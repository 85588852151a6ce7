"""The DaemonSets of a stack: kept for each key in a node's label or a node upgrade, else removed.

A deleted DaemonSet that nodes need is recreated; those of a deleted stack are removed in reverse order.
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
from upgrader.core.model.phases import is_final
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


def drift_counts(drifts: Sequence[NodeDrift]) -> list[DriftCount]:
    """Drift by reason with the first ten names, the most frequent first."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for node_drift in drifts:
        for finding in node_drift.findings:
            if finding.counts:
                by_reason[finding.reason.value].append(node_drift.node)
    return [
        DriftCount(reason=reason, nodes=len(nodes), names=sorted(nodes)[:SHOWN])
        for reason, nodes in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _is_unwanted_labeller(daemonset: DaemonSet, read: StackReading) -> bool:
    """Whether a DaemonSet reads node features for a stack that no longer labels."""
    is_labeller = daemonset.metadata.labels.get(names.LABEL_COMPONENT) == NODE_FEATURES
    return is_labeller and read.stack.spec.node_features != AUTO


async def sweep_daemonsets(context: Context, read: StackReading) -> None:
    """Remove DaemonSets of this stack that no node and no open upgrade needs; restore missing ones."""
    selector = f"{names.LABEL_STACK}={read.stack.metadata.name}"
    present = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=selector)
    await _restore_daemonsets(context, read, {_image_key(daemonset) for daemonset in present})
    if read.running is not None:
        return
    needed = {key for node in read.snapshot.nodes for key in (node.driver_key, node.runtime_key, node.plugin_key)}
    for upgrade in read.upgrades:
        if not is_final(upgrade.status.phase):
            for state in (upgrade.spec.source, upgrade.spec.target):
                needed |= {state.driver_key, state.runtime_key, state.plugin_key}
    for daemonset in present:
        unneeded = (
            _image_key(daemonset)
            and _image_key(daemonset) not in needed
            and daemonset.status.desired_number_scheduled == 0
        )
        if unneeded or _is_unwanted_labeller(daemonset, read) or nondisruptive_operands.is_unwanted(daemonset, read):
            await _remove_daemonset(context, daemonset)


async def _restore_daemonsets(context: Context, read: StackReading, present: set[str]) -> None:
    """Recreate missing DaemonSets that nodes in service need, from the nodes' own revisions."""
    catalogue = Catalogue(read.snapshot.images)
    seen: set[tuple[str, ...]] = set()
    for node in read.snapshot.nodes:
        keys = (node.driver_key, node.runtime_key, node.plugin_key)
        image = catalogue.image_of(node)
        if image is None or not node.revision or keys in seen or present.issuperset(filter(None, keys)):
            continue
        seen.add(keys)
        target = read.target
        if node.revision != target.revision:
            target = await read_target(context, read.stack.metadata.name, node.revision) or target
        if (runtime_key_of(target), plugin_key_of(target)) == keys[1:]:
            await daemonsets.ensure_daemonsets(context, read.stack, target, image)


async def remove_operands(context: Context, stack: str) -> float | None:
    """Remove the operands of a deleted stack, in reverse order; returns seconds to the next step.

    None when none is left. DaemonSets that nodes of another stack need are kept. No driver is unloaded: it stays
    loaded, with its label, until a node upgrade or a reboot.
    """
    selector = f"{names.LABEL_STACK}={stack}"
    present = await context.cluster.list(DAEMONSETS, context.stack.namespace, labels=selector)
    needed = await _needed_elsewhere(context, stack)
    going = [daemonset for daemonset in present if _image_key(daemonset) not in needed]
    for operand in reversed(Operand):
        mine = [daemonset for daemonset in going if _operand_of(daemonset) is operand]
        for daemonset in mine:
            if daemonset.metadata.deletion_timestamp is None:
                await _remove_daemonset(context, daemonset)
        if mine:
            return context.active_seconds  # the previous operands follow after its deletion
    return context.idle_seconds if present else None


async def _needed_elsewhere(context: Context, stack: str) -> set[str]:
    """Keys on nodes that another stack selects: a DaemonSet may serve both stacks."""
    stacks = [other for other in await context.cluster.list(GPU_STACKS) if other.metadata.name != stack]
    nodes = (context.nodes.snapshot() or {}).values()
    kept = [node for node in nodes if any(cluster_snapshot.in_pool(node, other.spec) for other in stacks)]
    labels = (names.LABEL_DRIVER, names.LABEL_RUNTIME, names.LABEL_DEVICE_PLUGIN)
    return {node.metadata.labels.get(label, "") for node in kept for label in labels} - {""}


async def _remove_daemonset(context: Context, daemonset: DaemonSet) -> None:
    if _operand_of(daemonset) is Operand.MONITORING:  # first, since the other objects are found by the DaemonSet
        await scraping.remove_scraping(context, daemonset.metadata.labels[names.LABEL_STACK])
    if _operand_of(daemonset) is Operand.FEATURE_DISCOVERY and not await gpu_features.remove_labels(
        context, daemonset.metadata.labels[names.LABEL_STACK]
    ):
        return  # the next step continues
    context.leadership.check()
    log.info("operand removed", name=daemonset.metadata.name)
    await context.cluster.delete(DAEMONSETS, daemonset.metadata)


def _image_key(daemonset: DaemonSet) -> str:
    return daemonset.metadata.labels.get(names.LABEL_IMAGE_KEY, "")


def _operand_of(daemonset: DaemonSet) -> Operand | None:
    return COMPONENTS.get(daemonset.metadata.labels.get(names.LABEL_COMPONENT, ""))
