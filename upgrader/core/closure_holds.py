"""What keeps a closure from being visited: its nodes, its gangs, the budget.

One hold holds the whole closure: a gang that cannot be stopped keeps all the nodes that are visited with it, since it
would else come back on mixed drivers.
"""

from collections.abc import Iterable

from upgrader.core.budget import Availability, Cost
from upgrader.core.closures import Closure
from upgrader.core.gang_holds import eviction_holds, gang_holds
from upgrader.core.holds import Found, Hold, HoldReason, World
from upgrader.core.node_holds import node_holds


def closure_holds(world: World, unit: Closure) -> list[Hold]:
    """Every reason that keeps a closure from being visited, its nodes' and its gangs'; the budget is not looked at."""
    found: list[Hold] = []
    for node in unit.nodes:
        found += _held(unit, node, node_holds(world, node))
    for name in unit.gangs:
        found += _held(unit, name, gang_holds(world, world.gangs[name]))
    for name in unit.evicted:
        found += _held(unit, name, eviction_holds(world, world.gangs[name]))
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
