"""Early restart of a stopped gang on idle upgraded nodes, instead of a wait for its own nodes."""

from collections.abc import Sequence
from datetime import timedelta

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import PODS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import timing
from upgrader.core.checkpoint_request.request_machine import SWAPPING
from upgrader.core.model.phases import NodePhase
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.patches import values_at
from upgrader.core.workloads import placement
from upgrader.core.workloads.gangs import ENDED
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner
from upgrader.reconcile.facts.device_claims import read_claimed
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.facts.pod_facts import gpus_of
from upgrader.reconcile.runtime.context import Context

LOOK = timedelta(seconds=30)
"""Interval of the search for idle nodes while a gang waits; each search lists all pods."""


async def fits_idle_nodes(
    context: Context, request: CheckpointRequest, owner: LiveOwner, upgrades: Sequence[NodeUpgrade], resource: str
) -> bool:
    """Whether the gang fits on idle nodes of the target revision, one for each of its nodes.

    An idle node needs as many whole GPUs as the gang's nodes have GPUs, so that its members fit in the same way, and
    the gang must be steerable. Sizes of partitions are not compared: no gang is moved to a partitioned node.
    """
    own = [upgrade for upgrade in upgrades if upgrade.status.phase in SWAPPING and not upgrade.status.reverting]
    targets = {upgrade.spec.target.revision for upgrade in upgrades}
    if len(own) < len(upgrades) or len(targets) != 1 or _mounts_host_paths(owner) or not is_look_due(context, upgrades):
        return False
    needed, size = (
        len({member.node for member in request.spec.members}),
        max(upgrade.status.found.gpus for upgrade in own),
    )
    (target,) = targets
    free = [
        node
        for node in (context.nodes.snapshot() or {}).values()
        if node.metadata.labels.get(names.LABEL_REVISION) == target and _in_service(node, resource, size)
    ]
    if len(free) < needed or not placement.is_steerable(owner.row, await context.cluster.version()):
        return False
    pods = await context.cluster.list(PODS)
    # A pod without a node may be bound to any of these nodes.
    waiting = [pod for pod in pods if not pod.spec.node_name and pod.status.phase not in ENDED]
    former = tuple(sorted({upgrade.spec.source.resource_name for upgrade in upgrades} - {"", resource}))
    gpus = PoolGpus(resource=resource, former=former, claimed=await read_claimed(context.cluster, pods))
    if any(gpus_of(pod, gpus) for pod in waiting):
        return False
    busy = {pod.spec.node_name for pod in pods if pod.status.phase not in ENDED and gpus_of(pod, gpus)}
    return len([node for node in free if node.metadata.name not in busy]) >= needed


def _mounts_host_paths(owner: LiveOwner) -> bool:
    """Whether its pods mount folders of their nodes, which may contain their checkpoints."""
    paths = [(*template, "spec", "volumes", "*", "hostPath") for template in owner.row.templates]
    return any(True for path in paths for _ in values_at(owner.body, path))


def is_look_due(context: Context, upgrades: Sequence[NodeUpgrade]) -> bool:
    """Whether the search is due: when the last node starts to unload, and every `LOOK` after that."""
    starts = [
        step.started_at for upgrade in upgrades for step in upgrade.status.steps if step.name is NodePhase.UNLOADING
    ]
    if not starts:
        return False
    waited = context.clock.now() - max(timing.parse_time(started_at) for started_at in starts)
    return waited % LOOK < timedelta(seconds=2 * context.active_seconds)


def _in_service(node: Node, resource: str, size: int) -> bool:
    facts = node_facts(node, resource)
    closed = any(taint.effect in {"NoSchedule", "NoExecute"} for taint in node.spec.taints)
    return facts.ready and not facts.taken and not facts.unschedulable and not closed and facts.gpus_whole >= size
