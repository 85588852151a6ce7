"""Effects of plans on pools of other stacks and on other plans; pure."""

from collections.abc import Iterable, Sequence

from upgrader.api.v1alpha1 import GpuStack, UpgradePlan
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import PlanPhase, is_final
from upgrader.core.upgrade_plan.plan_precedence import UNDER_WAY


def taken_elsewhere(plans: Sequence[UpgradePlan], others: Sequence[NodeFacts], stack: str) -> int:
    """GPUs in started batches of other stacks' plans, and of other nodes held by an upgrade without a batch.

    A node in its upgrade offers no GPUs: it counts as the largest known node.
    """
    batches = [
        batch
        for plan in plans
        if plan.spec.stack != stack and not is_final(plan.status.phase)
        for batch in plan.status.batches
        if batch.ended_at is None
    ]
    planned = {name for batch in batches for group in batch.groups for name in group.nodes}
    largest = max((node.gpus for node in others), default=0)
    alone = (node.gpus or max(1, largest) for node in others if node.taken and node.name not in planned)
    return sum(group.gpus for batch in batches for group in batch.groups) + sum(alone)


def taken_back(stacks: Sequence[GpuStack], plans: Sequence[UpgradePlan], stack: str) -> str:
    """The revision of a stack's spec, if a plan of the stack leads away from it; else empty."""
    asked = next((other.status.update_revision for other in stacks if other.metadata.name == stack), None)
    return asked if asked and away_from((plan for plan in plans if plan.spec.stack == stack), asked) else ""


def away_from(plans: Iterable[UpgradePlan], revision: str) -> bool:
    """Whether a plan leads or led away from the revision of its stack's spec."""
    return any(
        plan.status.phase in {*UNDER_WAY, PlanPhase.COMPLETED}
        and plan.spec.target_revision != revision
        and plan.status.stack_revision == revision
        for plan in plans
    )
