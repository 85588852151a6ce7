"""Blockers of an upgrade group: those of its nodes, of its gangs, and of the budget.

One blocker blocks the whole group: a gang that cannot be stopped blocks all nodes that are upgraded with it, since it
would otherwise restart on mixed drivers.
"""

from collections.abc import Iterable
from datetime import datetime

from upgrader.core.constraints.batch import GroupForecast
from upgrader.core.constraints.blockers import BlockedReason, Blocker, Found, IndexedSnapshot
from upgrader.core.constraints.capacity import Capacity, GpuDemand
from upgrader.core.constraints.gang_blockers import eviction_blockers, gang_blockers
from upgrader.core.constraints.node_blockers import node_blockers
from upgrader.core.constraints.upgrade_groups import UpgradeGroup
from upgrader.core.timing import format_time


def group_blockers(world: IndexedSnapshot, unit: UpgradeGroup) -> list[Blocker]:
    """Every blocker of a group's nodes and gangs; the budget is not checked."""
    blockers: list[Blocker] = []
    for node in unit.nodes:
        blockers += _make_blockers(unit, node, node_blockers(world, node))
    for name in unit.gangs:
        blockers += _make_blockers(unit, name, gang_blockers(world, world.gangs[name]))
    for name in unit.evicted:
        blockers += _make_blockers(unit, name, eviction_blockers(world, world.gangs[name]))
    return blockers


def over_budget(unit: UpgradeGroup, load: GpuDemand, limits: Capacity, *, blocked: bool) -> list[Blocker]:
    """Blockers of a group by the limits; that it waits for other groups is reported only if nothing else blocks it."""
    blockers = [
        blocker for blocker in (_over_gpu_budget(unit, load, limits), _below_floor(unit, load, limits)) if blocker
    ]
    blockers += _over_topology_budgets(load, limits)
    if not blockers and not blocked:
        blockers = _budget_taken(load, limits)[:1]
    return _make_blockers(unit, unit.name, blockers)


def too_late(unit: UpgradeGroup | GroupForecast, deadline: datetime, ends: datetime | None) -> Blocker:
    """The deadline's blocker of a group; `ends` is when its upgrade would end, None if the deadline has passed."""
    ways = "give the plan a later deadline, or leave it to another plan"
    if ends is None:
        reason, message = (
            BlockedReason.DEADLINE_PASSED,
            f"The plan's deadline {format_time(deadline)} has passed; {ways}.",
        )
    else:
        reason = BlockedReason.WONT_FIT
        message = (
            f"Its upgrade might last until {format_time(ends)}, after the plan's deadline "
            f"{format_time(deadline)}; {ways}, or raise maxUnavailable."
        )
    return Blocker(subject=unit.name, reason=reason, message=message, nodes=unit.nodes)


def _over_gpu_budget(unit: UpgradeGroup, load: GpuDemand, limits: Capacity) -> Found | None:
    pool = limits.pool
    if load.gpus <= pool.allowed:
        return None
    percent = -(-100 * load.gpus // pool.total) if pool.total else 100
    return (
        BlockedReason.GROUP_OVER_BUDGET,
        (
            f"Together these {len(unit.nodes)} nodes and their gangs take {load.gpus} GPUs out of service, the budget "
            f"is {pool.allowed} of {pool.total}; maxUnavailable: {load.gpus} (or {min(percent, 100)}%) would allow it."
        ),
    )


def _below_floor(unit: UpgradeGroup, load: GpuDemand, limits: Capacity) -> Found | None:
    left = limits.pool.total - load.gpus
    if left >= limits.floor or not load.added:
        return None
    return (
        BlockedReason.GROUP_OVER_BUDGET,
        (
            f"Together these {len(unit.nodes)} nodes and their gangs would leave {left} GPUs in service, the floor is "
            f"{limits.floor}; minAvailableGPUs: {left} would allow it."
        ),
    )


def _over_topology_budgets(load: GpuDemand, limits: Capacity) -> list[Found]:
    return [
        (
            BlockedReason.GROUP_OVER_BUDGET,
            (
                f"It takes {gpus} GPUs of {name} out of service, the topology budget is {domain.allowed} of "
                f"{domain.total} there; maxUnavailable: {gpus} for {domain.key} would allow it."
            ),
        )
        for name, (gpus, _) in load.domains.items()
        if gpus > (domain := limits.domains[name]).allowed
    ]


def _budget_taken(load: GpuDemand, limits: Capacity) -> list[Found]:
    pool = limits.pool
    blockers: list[Found] = []
    if load.added > pool.remaining:
        down = ", ".join([*list(pool.unavailable)[:5], *(["…"] if len(pool.unavailable) > 5 else [])])
        message = (
            f"It would take {load.added} more GPUs out of service; {pool.taken} of the {pool.allowed} that the budget "
            f"allows already are ({down or 'in other plans'}). It waits until they are in service again, or until "
            "maxUnavailable is raised."
        )
        blockers.append((BlockedReason.BUDGET_TAKEN, message))
    if load.added > limits.above_floor:
        message = (
            f"It would take {load.added} more GPUs out of service; {limits.in_service} are in service and "
            f"{limits.floor} must stay. It waits until more are in service, or until minAvailableGPUs is lowered."
        )
        blockers.append((BlockedReason.BUDGET_TAKEN, message))
    for name, (_, added) in load.domains.items():
        domain = limits.domains[name]
        if added > domain.remaining:
            message = (
                f"It would take {added} more GPUs of {name} out of service; {domain.taken} of the {domain.allowed} "
                "that its topology budget allows already are. It waits until they are in service again, or until "
                "maxUnavailable "
                f"for {domain.key} is raised."
            )
            blockers.append((BlockedReason.BUDGET_TAKEN, message))
    return blockers


def _make_blockers(unit: UpgradeGroup, subject: str, reasons: Iterable[Found]) -> list[Blocker]:
    return [Blocker(subject=subject, reason=reason, message=message, nodes=unit.nodes) for reason, message in reasons]
