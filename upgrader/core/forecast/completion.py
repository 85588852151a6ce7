"""Wait for completion: nodes whose jobs all end by themselves in time are taken at that moment, and nobody is asked."""

from datetime import datetime

from upgrader.core.constraints.blockers import World
from upgrader.core.constraints.gang_blockers import eviction_blockers
from upgrader.core.constraints.node_blockers import node_blockers
from upgrader.core.constraints.upgrade_groups import UpgradeGroup
from upgrader.core.model.prediction import Completion


def completion_of(world: World, unit: UpgradeGroup, now: datetime) -> Completion | None:
    """When the nodes of a group are free by themselves; None where its gangs run longer, or say nothing.

    Whether a gang could be asked does not matter: it is not asked. What blocks the nodes themselves blocks them still.
    A gang that has overrun its own word is waited for until `completion_until` all the same.
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
