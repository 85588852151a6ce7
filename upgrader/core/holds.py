"""Holds: why a node is not visited now, as one word and as a sentence with what to do about it.

Each check looks at one node or one gang and knows one reason. One hold holds the whole closure: a gang that cannot be
stopped keeps all the nodes that would have to be visited with it.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from upgrader.core.budget import Availability, Cost
from upgrader.core.catalogue import Catalogue
from upgrader.core.closures import Closure
from upgrader.core.drift import DriftReason, NodeDrift
from upgrader.core.fleet import Gang, NodeFacts, Snapshot, Target
from upgrader.core.skew import kubelet_skew


class HoldReason(StrEnum):
    """Why a closure waits, as one word."""

    NODE_IN_VISIT = "NodeInVisit"
    NODE_SKIPPED = "NodeSkipped"
    NODE_NOT_READY = "NodeNotReady"
    NODE_KERNEL_CHANGED = "NodeKernelChanged"
    NODE_NOT_OURS = "NodeNotOurs"
    NO_DRIVER_IMAGE = "NoDriverImage"
    PLUGIN_NOT_RESOLVED = "PluginNotResolved"
    KUBELET_SKEW = "KubeletSkew"
    GANG_UNDECLARED = "GangUndeclared"
    GANG_CANNOT_CHECKPOINT = "GangCannotCheckpoint"
    GANG_ALREADY_STOPPED = "GangAlreadyStopped"
    GANG_NOT_COMPLETE = "GangNotComplete"
    GANG_LEAVES_POOL = "GangLeavesPool"
    GANG_ON_OTHER_REVISION = "GangOnOtherRevision"
    CANNOT_RESTART = "CannotRestart"
    PDB_BLOCKS = "PdbBlocks"
    VETOED = "Vetoed"
    PLACEMENT_NOT_GUARANTEED = "PlacementNotGuaranteed"
    CLOSURE_OVER_BUDGET = "ClosureOverBudget"
    BUDGET_TAKEN = "BudgetTaken"


class Hold(Struct, frozen=True, kw_only=True):
    """Something that waits: `subject` is a node, gang or closure; `nodes` are all the nodes that it keeps waiting."""

    subject: str
    reason: HoldReason
    message: str
    nodes: tuple[str, ...]


class StrategyFacts(Struct, frozen=True, kw_only=True):
    """What of a plan's strategy and approval the forecast goes by."""

    max_unavailable: int | str = "25%"
    placement_unguaranteed: bool = False  # gangs may be restarted where the cluster offers no way to steer them


class World(Struct, frozen=True, kw_only=True):
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
    occupied: frozenset[str]  # nodes with members of gangs

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
    ) -> "World":
        """Index a snapshot and the drift found in it."""
        found = {one.node: one for one in drift}
        return cls(
            snapshot=snapshot,
            target=target,
            strategy=strategy,
            catalogue=Catalogue(snapshot.images),
            nodes={node.name: node for node in snapshot.nodes},
            gangs={gang.name: gang for gang in snapshot.gangs},
            drift=found,
            already=already,
            stopped_gangs=stopped_gangs,
            broken=frozenset(name for name, one in found.items() if one.has(DriftReason.KERNEL)),
            occupied=frozenset().union(*(gang.nodes for gang in snapshot.gangs)),
        )


Found = tuple[HoldReason, str]
"""A reason and its sentence."""


def node_holds(world: World, name: str) -> list[Found]:
    """Every reason that keeps one node from being visited, whatever runs there."""
    found = (check(world, world.nodes[name]) for check in _NODE_CHECKS)
    return [one for one in found if one is not None]


def closure_holds(world: World, unit: Closure) -> list[Hold]:
    """Every reason that keeps a closure from being visited, its nodes' and its gangs'; the budget is not looked at."""
    found: list[Hold] = []
    for node in unit.nodes:
        found += _held(unit, node, node_holds(world, node))
    for name in unit.gangs:
        found += _held(unit, name, _gang_holds(world, world.gangs[name]))
    for name in unit.evicted:
        gang = world.gangs[name]
        found += _held(unit, name, [one for one in (_pdb(world, gang), _veto(world, gang)) if one is not None])
    return found


def over_budget(unit: Closure, price: Cost, pool: Availability, *, held: bool) -> list[Hold]:
    """The budget's word on a closure; that it has to wait for others is said only where nothing else holds it."""
    if price.gpus > pool.allowed:
        percent = -(-100 * price.gpus // pool.total) if pool.total else 100
        message = (
            f"Together these {len(unit.nodes)} nodes and their gangs take {price.gpus} GPUs out of service, the budget "
            f"is {pool.allowed} of {pool.total}; maxUnavailable: {price.gpus} (or {min(percent, 100)}%) would allow it."
        )
        return _held(unit, unit.name, [(HoldReason.CLOSURE_OVER_BUDGET, message)])
    if held or price.added <= pool.remaining:
        return []
    down = ", ".join([*list(pool.unavailable)[:5], *(["…"] if len(pool.unavailable) > 5 else [])])
    message = (
        f"It would take {price.added} more GPUs out of service; {pool.taken} of the {pool.allowed} that the budget "
        f"allows already are ({down or 'in other plans'}). It waits until they are back, "
        "or until maxUnavailable is raised."
    )
    return _held(unit, unit.name, [(HoldReason.BUDGET_TAKEN, message)])


def _held(unit: Closure, subject: str, found: Iterable[Found]) -> list[Hold]:
    return [Hold(subject=subject, reason=reason, message=message, nodes=unit.nodes) for reason, message in found]


# ------------------------------------------------------------------------------------------------------- nodes


def _in_visit(_: World, node: NodeFacts) -> Found | None:
    if node.visit:
        return (
            HoldReason.NODE_IN_VISIT,
            f"Node {node.name} is held by another visit ({node.visit}); it waits for its end.",
        )
    if node.maintenance:
        return (
            HoldReason.NODE_IN_VISIT,
            (
                f"Node {node.name} still carries our maintenance taint of closure {node.maintenance}: its visit failed "
                "and was not undone. See its NodeUpgrade, repair the node, then remove the taint."
            ),
        )
    return None


def _skipped(_: World, node: NodeFacts) -> Found | None:
    if not node.skip:
        return None
    return (
        HoldReason.NODE_SKIPPED,
        f"Node {node.name} carries the label gpu-upgrader.io/skip=true; remove it to have the node upgraded.",
    )


def _not_ready(_: World, node: NodeFacts) -> Found | None:
    if node.ready:
        return None
    return HoldReason.NODE_NOT_READY, f"Node {node.name} is not Ready; repair it, or take it out of the pool."


def _kernel_changed(world: World, node: NodeFacts) -> Found | None:
    image = world.catalogue.bring_back(node)
    if image is None:
        return None
    return (
        HoldReason.NODE_KERNEL_CHANGED,
        (
            f"Node {node.name} came up with kernel {node.kernel}; it is first brought back to the driver that it had "
            f"({image.version}), without a plan. Nothing needs to be done."
        ),
    )


def _not_ours(world: World, node: NodeFacts) -> Found | None:
    if node.driver_key or node.name not in world.occupied:
        return None
    return (
        HoldReason.NODE_NOT_OURS,
        f"Node {node.name} runs pods with GPUs on a driver that we did not install; drain it, then it is installed.",
    )


def _no_image(world: World, node: NodeFacts) -> Found | None:
    if world.catalogue.wanted(node, world.target) is not None:
        return None
    target = world.target
    return (
        HoldReason.NO_DRIVER_IMAGE,
        (
            f"There is no Ready DriverImage for {target.driver_vendor} {target.driver_version} on kernel {node.kernel} "
            f"of node {node.name}; build one and make a DriverImage for it."
        ),
    )


def _plugin_unresolved(world: World, node: NodeFacts) -> Found | None:
    if world.target.plugin_digest:
        return None
    return (
        HoldReason.PLUGIN_NOT_RESOLVED,
        (
            f"The digest of device plugin {world.target.plugin_image} is not known, so node {node.name} is left alone; "
            "see whether its registry can be reached."
        ),
    )


def _skew(world: World, node: NodeFacts) -> Found | None:
    if not world.drift[node.name].has(DriftReason.KUBELET):
        return None
    skew = kubelet_skew(world.target.kubelet_version, world.snapshot.api_server_version)
    return None if skew.allowed else (HoldReason.KUBELET_SKEW, f"Node {node.name}: {skew.message}")


_NODE_CHECKS: tuple[Callable[[World, NodeFacts], Found | None], ...] = (
    _in_visit,
    _skipped,
    _not_ready,
    _kernel_changed,
    _not_ours,
    _no_image,
    _plugin_unresolved,
    _skew,
)


# ------------------------------------------------------------------------------------------------------- gangs


def _gang_holds(world: World, gang: Gang) -> list[Found]:
    undeclared = _undeclared(world, gang)
    if undeclared is not None:
        return [undeclared]  # nothing is asked of it and nothing is done to it: it is waited for
    found = (check(world, gang) for check in _GANG_CHECKS)
    return [one for one in found if one is not None]


def _undeclared(_: World, gang: Gang) -> Found | None:
    if gang.method == "none":
        return (
            HoldReason.GANG_CANNOT_CHECKPOINT,
            f"{gang.name} declares that it cannot checkpoint; it is waited for until it ends.",
        )
    if gang.method:
        return None
    why = gang.undeclared_because or "It says nothing about how to ask it for a checkpoint."
    return (
        HoldReason.GANG_UNDECLARED,
        f"{gang.name} is waited for until it ends. {why} See docs/checkpointing.md for what it can declare.",
    )


def _already_stopped(world: World, gang: Gang) -> Found | None:
    if gang.name in world.stopped_gangs:
        return (
            HoldReason.GANG_ALREADY_STOPPED,
            (
                f"{gang.name} was stopped by this plan once and runs on nodes that are not upgraded; it is not stopped "
                "again. It is waited for until it ends, or restart it on upgraded nodes yourself."
            ),
        )
    if gang.stopped_by:
        return (
            HoldReason.GANG_ALREADY_STOPPED,
            f"{gang.name} is being stopped by plan {gang.stopped_by}; it is waited for until that plan restarted it.",
        )
    return None


def _cannot_restart(_: World, gang: Gang) -> Found | None:
    if gang.owner is not None and not gang.cannot_stop:
        return None
    why = gang.cannot_stop or "Nothing would make its pods again."
    return HoldReason.CANNOT_RESTART, f"{gang.name} cannot be stopped and restarted by us: {why} It is waited for."


def _veto(_: World, gang: Gang) -> Found | None:
    if not gang.veto:
        return None
    return (
        HoldReason.VETOED,
        f"{gang.name} forbids any disruption by annotation {gang.veto}; it is waited for, or remove the annotation.",
    )


def _not_complete(_: World, gang: Gang) -> Found | None:
    if gang.complete:
        return None
    running = sum(member.running for member in gang.members)
    return (
        HoldReason.GANG_NOT_COMPLETE,
        (
            f"{gang.name} has {running} running members of {max(gang.wanted, len(gang.members))}; only complete gangs "
            "are asked. See why the others do not run."
        ),
    )


def _leaves_pool(world: World, gang: Gang) -> Found | None:
    outside = sorted({member.node for member in gang.members if member.gpus and member.node} - world.nodes.keys())
    if not outside:
        return None
    return (
        HoldReason.GANG_LEAVES_POOL,
        (
            f"{gang.name} also uses GPUs on {', '.join(outside)}, which stack {world.target.stack} does not select; "
            "put its nodes into one pool, or wait for its end."
        ),
    )


def _on_other_revision(world: World, gang: Gang) -> Found | None:
    for name in sorted(gang.nodes & world.nodes.keys()):
        node, found = world.nodes[name], world.drift.get(name)
        if node.taken and not (found and found.drifted and name not in world.already):
            return (
                HoldReason.GANG_ON_OTHER_REVISION,
                f"{gang.name} also runs on node {name}, which is in a visit; it waits for the visit's end.",
            )
        if name in world.already and found is not None and found.drifted:
            return (
                HoldReason.GANG_ON_OTHER_REVISION,
                (
                    f"{gang.name} also runs on node {name}, whose visit by this plan did not bring it to revision "
                    f"{world.target.revision}; it would run on mixed drivers. See that node's NodeUpgrade."
                ),
            )
    return None


def _pdb(world: World, gang: Gang) -> Found | None:
    name = world.snapshot.pdb_blocked.get(gang.name)
    if name is None:
        return None
    return (
        HoldReason.PDB_BLOCKS,
        f"PodDisruptionBudget {name} does not allow to disrupt {gang.name} now; it waits until it does, or change it.",
    )


def _placement(world: World, _: Gang) -> Found | None:
    if world.snapshot.steering or world.strategy.placement_unguaranteed:
        return None
    return (
        HoldReason.PLACEMENT_NOT_GUARANTEED,
        (
            "This cluster offers no way to steer a restarted gang to upgraded nodes (Kubernetes 1.36 does); "
            "placementUnguaranteed in the approval allows to restart gangs all the same."
        ),
    )


_GANG_CHECKS: tuple[Callable[[World, Gang], Found | None], ...] = (
    _already_stopped,
    _cannot_restart,
    _veto,
    _not_complete,
    _leaves_pool,
    _on_other_revision,
    _pdb,
    _placement,
)
