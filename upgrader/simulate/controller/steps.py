"""The next time-based step of a group without events."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from upgrader.core.checkpoint_request.acknowledgements import LAST_CALL
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.node_upgrade.upgrade_state import SETTLE
from upgrader.simulate.controller.objects import Request, SimGroup
from upgrader.simulate.world import SimulatedCluster

LANES = timedelta(seconds=5)
"""Interval of steps for a gang that waits for its lane, which other groups release."""

_R = RequestPhase


def next_step_second(world: SimulatedCluster, group: SimGroup, *, lanes: bool) -> int | None:
    """The second of the next due step of a group; None if it only waits for events."""
    times = [
        *_upgrade_times(world, group),
        *(time for request in group.requests if not request.is_over for time in _request_times(request)),
    ]
    if lanes and any(request.phase is _R.REQUESTED and request.admitted_at is None for request in group.requests):
        times.append(world.queue.time + LANES)
    upcoming = [second for second in map(world.queue.seconds_at, times) if second > world.now]
    return min(upcoming, default=None)


def _upgrade_times(world: SimulatedCluster, group: SimGroup) -> Iterator[datetime]:
    for upgrade in group.upgrades:
        node = world.nodes.get(upgrade.node)
        if upgrade.deadline is not None and not upgrade.is_over:
            yield upgrade.deadline
        if upgrade.phase is NodePhase.TAINTING and node is not None and node.closed_at is not None:
            yield node.closed_at + SETTLE


def _request_times(request: Request) -> Iterator[datetime]:
    if request.deadline is not None:
        yield request.deadline
    if request.phase in {_R.REQUESTED, _R.PARKED, _R.STOPPING}:
        yield request.stop_before - LAST_CALL
    if request.restart_by is not None:
        yield request.restart_by
