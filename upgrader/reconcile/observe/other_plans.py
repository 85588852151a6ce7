"""What plans mean for a pool that they are not about, or that another plan is about; pure."""

from collections.abc import Iterable, Sequence

from upgrader.api.v1alpha1 import GpuStack, UpgradePlan
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import PlanPhase, ends
from upgrader.core.upgrade_plan.plan_precedence import UNDER_WAY


def taken_elsewhere(plans: Sequence[UpgradePlan], others: Sequence[NodeFacts], stack: str) -> int:
    """GPUs of the started batches of other stacks' plans, and of other nodes that a node upgrade holds without a batch.

    A node in its upgrade shows no GPUs: it counts as the largest that is known.
    """
    batches = [
        batch
        for plan in plans
        if plan.spec.stack != stack and not ends(plan.status.phase)
        for batch in plan.status.batches
        if batch.ended_at is None
    ]
    planned = {name for batch in batches for group in batch.groups for name in group.nodes}
    largest = max((node.gpus for node in others), default=0)
    alone = (node.gpus or max(1, largest) for node in others if node.taken and node.name not in planned)
    return sum(group.gpus for batch in batches for group in batch.groups) + sum(alone)


def taken_back(stacks: Sequence[GpuStack], plans: Sequence[UpgradePlan], stack: str) -> str:
    """The revision that a stack asks for, where a plan of it leads away from that; else empty."""
    asked = next((one.status.update_revision for one in stacks if one.metadata.name == stack), None)
    return asked if asked and away_from((one for one in plans if one.spec.stack == stack), asked) else ""


def away_from(plans: Iterable[UpgradePlan], revision: str) -> bool:
    """Whether a plan has led, or leads, away from the revision that its stack asks for."""
    return any(
        one.status.phase in {*UNDER_WAY, PlanPhase.COMPLETED}
        and one.spec.target_revision != revision
        and one.status.stack_revision == revision
        for one in plans
    )
