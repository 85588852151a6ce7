"""Upgraded nodes in service that nobody uses: a stopped gang goes on there at once, instead of waiting for its own."""

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
from upgrader.core.patches import every
from upgrader.core.workloads import placement
from upgrader.core.workloads.gangs import ENDED
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner
from upgrader.reconcile.facts.device_claims import read_claimed
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.facts.pod_facts import gpus_of
from upgrader.reconcile.runtime.context import Context

LOOK = timedelta(seconds=30)
"""How often spares are looked for while a gang waits: it takes a list of all pods."""


async def enough(
    context: Context, request: CheckpointRequest, owner: LiveOwner, upgrades: Sequence[NodeUpgrade], resource: str
) -> bool:
    """Whether the gang fits on idle nodes of the target revision, one for each node that it was on.

    Nodes with as many whole GPUs as its own have GPUs, so that its members fit there as they did; only where it can be
    steered there. Partitions are of sizes that we do not compare: no gang leaves its own nodes for them.
    """
    own = [one for one in upgrades if one.status.phase in SWAPPING and not one.status.reverting]
    targets = {one.spec.target.revision for one in upgrades}
    if len(own) < len(upgrades) or len(targets) != 1 or _pinned(owner) or not due(context, upgrades):
        return False
    needed, size = len({member.node for member in request.spec.members}), max(one.status.found.gpus for one in own)
    (target,) = targets
    free = [
        node
        for node in (context.nodes.snapshot() or {}).values()
        if node.metadata.labels.get(names.LABEL_REVISION) == target and _in_service(node, resource, size)
    ]
    if len(free) < needed or not placement.possible(owner.row, await context.cluster.version()):
        return False
    pods = await context.cluster.list(PODS)
    # Those without a node count for all: whoever made them may be about to bind them there.
    waiting = [pod for pod in pods if not pod.spec.node_name and pod.status.phase not in ENDED]
    former = tuple(sorted({one.spec.source.resource_name for one in upgrades} - {"", resource}))
    gpus = PoolGpus(resource=resource, former=former, claimed=await read_claimed(context.cluster, pods))
    if any(gpus_of(pod, gpus) for pod in waiting):
        return False
    busy = {pod.spec.node_name for pod in pods if pod.status.phase not in ENDED and gpus_of(pod, gpus)}
    return len([node for node in free if node.metadata.name not in busy]) >= needed


def _pinned(owner: LiveOwner) -> bool:
    """Whether its pods mount folders of their nodes: what they saved may be on these and on no other."""
    paths = [(*template, "spec", "volumes", "*", "hostPath") for template in owner.row.templates]
    return any(True for path in paths for _ in every(owner.body, path))


def due(context: Context, upgrades: Sequence[NodeUpgrade]) -> bool:
    """At once when the last node is switched off, and every `LOOK` after that."""
    begun = [step.started_at for one in upgrades for step in one.status.steps if step.name is NodePhase.UNLOADING]
    if not begun:
        return False
    waited = context.clock.now() - max(timing.parse(one) for one in begun)
    return waited % LOOK < timedelta(seconds=2 * context.active_seconds)


def _in_service(node: Node, resource: str, size: int) -> bool:
    facts = node_facts(node, resource)
    closed = any(one.effect in {"NoSchedule", "NoExecute"} for one in node.spec.taints)
    return facts.ready and not facts.taken and not facts.unschedulable and not closed and facts.gpus_whole >= size
