"""Wait for completion: nodes whose jobs all end in time are upgraded then, without a request."""

from datetime import datetime

from upgrader.core.constraints.blockers import IndexedSnapshot
from upgrader.core.constraints.gang_blockers import eviction_blockers
from upgrader.core.constraints.node_blockers import node_blockers
from upgrader.core.constraints.upgrade_groups import UpgradeGroup
from upgrader.core.model.prediction import Completion


def completion_of(world: IndexedSnapshot, unit: UpgradeGroup, now: datetime) -> Completion | None:
    """When the jobs on a group's nodes have ended; None if its gangs run longer, or declare no end.

    The blockers of its gangs do not matter, since no request is sent; the blockers of its nodes do. A gang that runs
    longer than it declares is still waited for until `completion_until`.
    """
    until = world.strategy.completion_until
    if until is None or now >= until or not unit.gangs:
        return None
    ends = [world.gangs[name].ends_at for name in unit.gangs]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or max(known) > until:
        return None
    if any(node_blockers(world, node) for node in unit.nodes):
        return None
    if any(eviction_blockers(world, world.gangs[name]) for name in unit.evicted):
        return None
    return Completion(nodes=unit.nodes, gangs=unit.gangs, at=max([now, *known]))
