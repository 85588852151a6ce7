"""What one step of a stack looked at, as it was read: the inputs of all that is decided for it."""

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
    """Everything that one step of a stack looked at."""

    stack: GpuStack
    target: Target
    plans: Sequence[UpgradePlan]
    upgrades: Sequence[NodeUpgrade]
    """Those of this stack; all of the cluster where a claim on a node was none of theirs. Read after the nodes."""
    snapshot: Snapshot
    drift: tuple[NodeDrift, ...]
    reporting: Sequence[Pod]
    """Pods that we made for this stack: some carry reports of their nodes."""
    asked: Sequence[Pod]
    """Pods with the marks of a CheckpointRequest."""

    @cached_property
    def own_upgrades(self) -> list[NodeUpgrade]:
        """Those that the stack has ordered by itself."""
        return [one for one in self.upgrades if one.spec.plan is None and one.spec.stack == self.stack.metadata.name]

    @cached_property
    def upgrades_of_node(self) -> Mapping[str, list[NodeUpgrade]]:
        """The same by uid of their node."""
        found: dict[str, list[NodeUpgrade]] = defaultdict(list)
        for one in self.own_upgrades:
            found[one.spec.node.uid].append(one)
        return found

    @property
    def running(self) -> UpgradePlan | None:
        """The plan under way."""
        return next((one for one in self.plans if one.status.phase in UNDER_WAY), None)

    @cached_property
    def claims(self) -> frozenset[str]:
        """Uids of the NodeUpgrades that claim nodes of the pool."""
        return claims_of(self.snapshot)

    @cached_property
    def orphans(self) -> frozenset[str]:
        """Claims on nodes whose upgrade is no more, or gave its node back."""
        return orphaned(self.claims, self.upgrades)

    @cached_property
    def occupied(self) -> frozenset[str]:
        """Nodes with pods of gangs."""
        return frozenset(name for gang in self.snapshot.gangs for name in gang.nodes)


def claims_of(snapshot: Snapshot) -> frozenset[str]:
    """Uids of NodeUpgrades that nodes carry as claims."""
    return frozenset(node.claimed_by for node in snapshot.nodes if node.claimed_by)


def orphaned(claims: AbstractSet[str], upgrades: Iterable[NodeUpgrade]) -> frozenset[str]:
    """Claims that belong to no NodeUpgrade of any stack or plan, or to one that gave its node back.

    An upgrade is made before it claims its node, and claims are read first: one that is in force is never among them.
    A leader that was frozen may write a claim when the next one has ended the upgrade, which had not seen it.

    Args:
        claims: as nodes had them.
        upgrades: all NodeUpgrades that may have made such a claim, read after the nodes.
    """
    return frozenset(claims - {one.metadata.uid for one in upgrades if not _gave_back(one)})


def _gave_back(upgrade: NodeUpgrade) -> bool:
    """Whether a node upgrade failed and left nothing on its node; where even the way back failed its marks stay."""
    return upgrade.status.phase is NodePhase.FAILED and upgrade.status.reason != "RevertFailed"
