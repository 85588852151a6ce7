"""The inputs of one step of a stack, as they were read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade, UpgradePlan
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.model.fleet import Snapshot, Target
from upgrader.core.model.phases import NodePhase
from upgrader.core.upgrade_plan.plan_machine import UNDER_WAY


@dataclass(frozen=True, kw_only=True)
class StackReading:
    """All inputs of one step of a stack."""

    stack: GpuStack
    target: Target
    plans: Sequence[UpgradePlan]
    upgrades: Sequence[NodeUpgrade]
    """Upgrades of this stack; all upgrades of the cluster if a node has another claim. Read after the nodes."""
    snapshot: Snapshot
    drift: tuple[NodeDrift, ...]
    reporting: Sequence[Pod]
    """The operator's own pods of this stack; some contain reports of their nodes."""
    asked: Sequence[Pod]
    """Pods with the annotations of a CheckpointRequest."""

    @cached_property
    def own_upgrades(self) -> list[NodeUpgrade]:
        """Upgrades that the stack has created by itself."""
        return [
            upgrade
            for upgrade in self.upgrades
            if upgrade.spec.plan is None and upgrade.spec.stack == self.stack.metadata.name
        ]

    @cached_property
    def upgrades_of_node(self) -> Mapping[str, list[NodeUpgrade]]:
        """The stack's own upgrades by uid of their node."""
        by_node: dict[str, list[NodeUpgrade]] = defaultdict(list)
        for upgrade in self.own_upgrades:
            by_node[upgrade.spec.node.uid].append(upgrade)
        return by_node

    @property
    def running(self) -> UpgradePlan | None:
        """The plan in progress."""
        return next((plan for plan in self.plans if plan.status.phase in UNDER_WAY), None)

    @cached_property
    def claims(self) -> frozenset[str]:
        """Uids of the NodeUpgrades that claim nodes of the pool."""
        return claims_of(self.snapshot)

    @cached_property
    def orphans(self) -> frozenset[str]:
        """Claims on nodes whose upgrade is deleted or has released its node."""
        return orphaned_claims(self.claims, self.upgrades)

    @cached_property
    def occupied(self) -> frozenset[str]:
        """Nodes with pods of gangs."""
        return frozenset(name for gang in self.snapshot.gangs for name in gang.nodes)


def claims_of(snapshot: Snapshot) -> frozenset[str]:
    """Uids of NodeUpgrades in the claims of nodes."""
    return frozenset(node.claimed_by for node in snapshot.nodes if node.claimed_by)


def orphaned_claims(claims: AbstractSet[str], upgrades: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Claims of no existing NodeUpgrade of any stack or plan, or of one that has released its node.

    An upgrade is created before it claims its node, and claims are read first, so a valid claim is never among them.
    A former leader that was frozen may write a claim after the next leader has ended the upgrade.

    Args:
        claims: claims of nodes.
        upgrades: all NodeUpgrades that may have such a claim, read after the nodes.
    """
    return frozenset(claims - {upgrade.metadata.uid for upgrade in upgrades if not _gave_back(upgrade)})


def _gave_back(upgrade: NodeUpgrade) -> bool:
    """Whether a node upgrade failed and released its node; after a failed revert its claim stays."""
    return upgrade.status.phase is NodePhase.FAILED and upgrade.status.reason != "RevertFailed"
