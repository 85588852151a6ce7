"""Blockers: the reasons why a node is not upgraded now, each a word and a sentence with what to do about it."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from upgrader.core.constraints.emptied_nodes import emptied_nodes, perhaps_rebooted_nodes
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack.drift import DriftReason, NodeDrift
from upgrader.core.model.fleet import Gang, NodeFacts, Snapshot, Target
from upgrader.core.model.strategy import StrategyFacts


class BlockedReason(StrEnum):
    """Why an upgrade group waits, as one word."""

    TWO_STACKS = "TwoStacks"
    NODE_UPGRADING = "NodeUpgrading"
    NODE_SKIPPED = "NodeSkipped"
    NODE_UNREADABLE = "NodeUnreadable"
    NODE_NOT_READY = "NodeNotReady"
    FOREIGN_DRIVER = "ForeignDriver"
    GPUS_MISSING = "GPUsMissing"
    NODE_KERNEL_CHANGED = "NodeKernelChanged"
    DRIVER_UNKNOWN = "DriverUnknown"
    NODE_NOT_ADOPTED = "NodeNotAdopted"
    NO_DRIVER_IMAGE = "NoDriverImage"
    PLUGIN_NOT_RESOLVED = "PluginNotResolved"
    KUBELET_SKEW = "KubeletSkew"
    DYNAMIC_RESOURCES = "DynamicResources"
    GANG_UNDECLARED = "GangUndeclared"
    GANG_CANNOT_CHECKPOINT = "GangCannotCheckpoint"
    GANG_ALREADY_STOPPED = "GangAlreadyStopped"
    GANG_NOT_COMPLETE = "GangNotComplete"
    GANG_REFUSES = "GangRefuses"
    GANG_DOES_NOT_ANSWER = "GangDoesNotAnswer"
    NODES_LEFT_OUT = "NodesLeftOut"
    GANG_LEAVES_POOL = "GangLeavesPool"
    GANG_ON_OTHER_REVISION = "GangOnOtherRevision"
    CANNOT_RESTART = "CannotRestart"
    RESOURCE_NOT_OFFERED = "ResourceNotOffered"
    PDB_BLOCKS = "PdbBlocks"
    VETOED = "Vetoed"
    PLACEMENT_NOT_GUARANTEED = "PlacementNotGuaranteed"
    GROUP_OVER_BUDGET = "GroupOverBudget"
    BUDGET_TAKEN = "BudgetTaken"
    WAITED_FOR = "WaitedFor"
    DEADLINE_PASSED = "DeadlinePassed"
    WONT_FIT = "WontFit"


class Blocker(Struct, frozen=True, kw_only=True, gc=False):
    """A blocked node, gang or upgrade group, the `subject`; `nodes` are all nodes that wait for it."""

    subject: str
    reason: BlockedReason
    message: str
    nodes: tuple[str, ...]


class IndexedSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot, indexed for the checks."""

    snapshot: Snapshot
    target: Target
    strategy: StrategyFacts
    catalogue: Catalogue
    nodes: dict[str, NodeFacts]
    gangs: dict[str, Gang]
    drift: dict[str, NodeDrift]
    already: frozenset[str]
    stopped_gangs: frozenset[str]
    broken: frozenset[str]  # nodes whose driver is for another kernel than they run
    occupied: frozenset[str]  # nodes with members of gangs that have GPUs
    rebooted: frozenset[str]  # nodes that a node upgrade would reboot, which ends every pod on them
    perhaps_rebooted: frozenset[str]  # nodes that it would reboot only if their driver cannot be unloaded
    emptied: frozenset[str]  # both, and nodes on which a node upgrade would change how pods get their CPUs

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        target: Target,
        strategy: StrategyFacts,
        *,
        drift: Iterable[NodeDrift],
        already: frozenset[str],
        stopped_gangs: frozenset[str],
    ) -> "IndexedSnapshot":
        """Index a snapshot and its drift."""
        by_node = {node.node: node for node in drift}
        may_reboot, known = snapshot.reboots_after_failed_unload, (snapshot.nodes, target, snapshot.images)
        return cls(
            snapshot=snapshot,
            target=target,
            strategy=strategy,
            catalogue=Catalogue(snapshot.images),
            nodes={node.name: node for node in snapshot.nodes},
            gangs={gang.name: gang for gang in snapshot.gangs},
            drift=by_node,
            already=already,
            stopped_gangs=stopped_gangs,
            broken=frozenset(name for name, node in by_node.items() if node.has(DriftReason.KERNEL)),
            occupied=frozenset().union(*(gang.nodes for gang in snapshot.gangs if gang.gpus)),
            rebooted=frozenset(node.name for node in snapshot.nodes if target.reboots(node)),
            perhaps_rebooted=perhaps_rebooted_nodes(*known) if may_reboot else frozenset(),
            emptied=emptied_nodes(*known, reboots_after_failed_unload=may_reboot),
        )


Found = tuple[BlockedReason, str]
"""A reason and its sentence."""
