"""When a group must be looked at again although nothing happens to it: its times."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from upgrader.core.checkpoint_request.acknowledgements import LAST_CALL
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.node_upgrade.upgrade_state import SETTLE
from upgrader.simulate.controller.objects import Request, UpgradeGroup
from upgrader.simulate.world import World

LANES = timedelta(seconds=5)
"""How often a gang that waits for its lane is looked at: what frees it happens elsewhere."""

_R = RequestPhase


def next_look(world: World, group: UpgradeGroup, *, lanes: bool) -> int | None:
    """The next second that something of it is due in; None where it waits for events only."""
    times = [
        *_of_upgrades(world, group),
        *(time for request in group.requests if not request.over for time in _request_times(request)),
    ]
    if lanes and any(one.phase is _R.REQUESTED and one.admitted_at is None for one in group.requests):
        times.append(world.agenda.time + LANES)
    later = [one for one in map(world.agenda.seconds, times) if one > world.now]
    return min(later, default=None)


def _of_upgrades(world: World, group: UpgradeGroup) -> Iterator[datetime]:
    for one in group.upgrades:
        node = world.nodes.get(one.node)
        if one.deadline is not None and not one.over:
            yield one.deadline
        if one.phase is NodePhase.TAINTING and node is not None and node.closed_at is not None:
            yield node.closed_at + SETTLE


def _request_times(request: Request) -> Iterator[datetime]:
    if request.deadline is not None:
        yield request.deadline
    if request.phase in {_R.REQUESTED, _R.PARKED, _R.STOPPING}:
        yield request.stop_before - LAST_CALL
    if request.restart_by is not None:
        yield request.restart_by
