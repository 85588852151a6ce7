"""What every part of one forecast works with: the world, its limits, how long things take, and the time."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.constraints.blockers import World
from upgrader.core.constraints.capacity import Capacity
from upgrader.core.constraints.checkpoint_concurrency import ROUNDS
from upgrader.core.constraints.windows import Calendar
from upgrader.core.forecast.bin_packing import Rules
from upgrader.core.forecast.duration_model import Pace
from upgrader.core.model.fleet import Gang


class Frame(Struct, frozen=True, kw_only=True):
    """One forecast's givens; see `frame_of`."""

    world: World
    limits: Capacity
    pace: Pace
    now: datetime
    rules: Rules

    def second(self, moment: datetime | None) -> int:
        """Whole seconds from now until then, rounded up; 0 for what is past or not given."""
        if moment is None:
            return 0
        return max(0, math.ceil((moment - self.now).total_seconds()))

    def moment(self, second: int) -> datetime:
        """The time so many seconds after now."""
        return self.now + timedelta(seconds=second)

    def checkpoint(self, gang: Gang) -> tuple[float, float]:
        """Median and 95th percentile of the gang's checkpoint."""
        return self.pace.checkpoint(gang.timeout_seconds or self.world.strategy.checkpoint_seconds)


def frame_of(world: World, limits: Capacity, pace: Pace, now: datetime) -> Frame:
    """The givens of a strategy.

    Raises:
        ConfigurationError: a window has no such time, day or zone.
    """
    strategy = world.strategy
    calendar = Calendar(strategy.windows, now)
    rooms = limits.rooms()
    if strategy.lane_width:
        rooms |= {turn(gang.lane): strategy.lane_width * ROUNDS for gang in world.gangs.values()}
    opens = _opens(calendar, now) if strategy.windows else _at_once
    return Frame(
        world=world,
        limits=limits,
        pace=pace,
        now=now,
        rules=Rules(rooms=rooms, opens=opens, lane_width=strategy.lane_width),
    )


def turn(lane: str) -> str:
    """The room that a lane is among the rooms of a batch."""
    return f"turns of {lane or 'the unnamed lane'}"


def _at_once(second: int) -> int:
    return second


def _opens(calendar: Calendar, now: datetime) -> Callable[[int], int]:
    def opens(second: int) -> int:
        return math.ceil((calendar.opens(now + timedelta(seconds=second)) - now).total_seconds())

    return opens
