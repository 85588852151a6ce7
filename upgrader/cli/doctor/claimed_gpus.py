"""Check of `upgrader doctor` for GPUs that pods hold by ResourceClaims: no plan starts on their nodes."""

from collections.abc import Mapping, Sequence

from upgrader.api.resources import GPU_STACKS, NODES, PODS
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.model.device_claims import describe_holders
from upgrader.core.naming import list_names
from upgrader.reconcile.facts.device_claims import holders_by_node, read_claimed
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context


async def find_claimed_gpus(context: Context) -> list[Advice]:
    """One warning for each stack with such nodes.

    Raises:
        ClusterError: the API server rejected a request or is not reachable.
    """
    stacks = await context.cluster.list(GPU_STACKS)
    pods = await context.cluster.list(PODS) if stacks else ()
    holders = holders_by_node(pods, await read_claimed(context.cluster, pods))
    if not holders:
        return []
    nodes = [node for node in await context.cluster.list(NODES) if node.metadata.name in holders]
    blocked_by_stack = {
        stack.metadata.name: {
            node.metadata.name: holders[node.metadata.name]
            for node in nodes
            if cluster_snapshot.in_pool(node, stack.spec)
        }
        for stack in stacks
    }
    return [_claims_warning(stack, blocked) for stack, blocked in sorted(blocked_by_stack.items()) if blocked]


def _claims_warning(stack: str, holders: Mapping[str, Sequence[str]]) -> Advice:
    pods = sorted({pod for names in holders.values() for pod in names})
    return Advice(
        subject=f"stack {stack}",
        check="DynamicResources",
        severity=Severity.WARNING,
        message=f"on {list_names(sorted(holders))}: {describe_holders(pods)}",
        fix="Request the resourceName of the stack instead: such jobs are stopped and restarted in upgrades.",
    )
