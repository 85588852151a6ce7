"""Check of `upgrader doctor` that compares the limits of each stack with its ended node upgrades."""

from collections import defaultdict
from collections.abc import Iterable

from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core import timing
from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.measured_limits import check_limits
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.runtime.context import Context


async def check_measured_limits(context: Context) -> list[Advice]:
    """The findings of all stacks.

    Raises:
        ClusterError: the API server rejected a request or is not reachable.
    """
    stacks = await context.cluster.list(GPU_STACKS)
    upgrades = await context.cluster.list(NODE_UPGRADES) if stacks else ()
    return [
        advice
        for stack in sorted(stacks, key=lambda stack: stack.metadata.name)
        for advice in check_limits(
            stack.metadata.name,
            stack.spec.limits,
            _measured_durations(upgrade for upgrade in upgrades if upgrade.spec.stack == stack.metadata.name),
        )
    ]


def _measured_durations(upgrades: Iterable[NodeUpgrade]) -> dict[NodePhase, list[float]]:
    durations: dict[NodePhase, list[float]] = defaultdict(list)
    for upgrade in upgrades:
        for step in upgrade.status.steps:
            if step.ended_at is not None:
                began, ended = timing.parse_time(step.started_at), timing.parse_time(step.ended_at)
                durations[step.name].append((ended - began).total_seconds())
    return durations
