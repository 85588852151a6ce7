"""The shared values of one forecast: the world, its limits, expected durations, and the time."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.constraints.blockers import IndexedSnapshot
from upgrader.core.constraints.capacity import Capacity
from upgrader.core.constraints.checkpoint_concurrency import ROUNDS
from upgrader.core.constraints.windows import Calendar
from upgrader.core.forecast.bin_packing import Rules
from upgrader.core.forecast.duration_model import GroupDurations
from upgrader.core.model.fleet import Gang


class Frame(Struct, frozen=True, kw_only=True):
    """The shared values of one forecast; see `frame_of`."""

    world: IndexedSnapshot
    limits: Capacity
    pace: GroupDurations
    now: datetime
    rules: Rules

    def seconds_until(self, moment: datetime | None) -> int:
        """Whole seconds from now until then, rounded up; 0 if it is past or not given."""
        if moment is None:
            return 0
        return max(0, math.ceil((moment - self.now).total_seconds()))

    def time_at(self, second: int) -> datetime:
        """The time this many seconds after now."""
        return self.now + timedelta(seconds=second)

    def checkpoint_spread(self, gang: Gang) -> tuple[float, float]:
        """Median and 95th percentile of the gang's checkpoint."""
        return self.pace.checkpoint_duration(gang.timeout_seconds or self.world.strategy.checkpoint_seconds)


def frame_of(world: IndexedSnapshot, limits: Capacity, pace: GroupDurations, now: datetime) -> Frame:
    """The shared values of a forecast with the world's strategy.

    Raises:
        ConfigurationError: a window has a time, day or zone that does not exist.
    """
    strategy = world.strategy
    calendar = Calendar(strategy.windows, now)
    rooms = limits.room_by_limit()
    if strategy.lane_width:
        rooms |= {lane_room(gang.lane): strategy.lane_width * ROUNDS for gang in world.gangs.values()}
    opens = _opening_seconds(calendar, now) if strategy.windows else _at_once
    return Frame(
        world=world,
        limits=limits,
        pace=pace,
        now=now,
        rules=Rules(rooms=rooms, opens=opens, lane_width=strategy.lane_width),
    )


def lane_room(lane: str) -> str:
    """The name of a lane's room among the rooms of a batch."""
    return f"turns of {lane or 'the unnamed lane'}"


def _at_once(second: int) -> int:
    return second


def _opening_seconds(calendar: Calendar, now: datetime) -> Callable[[int], int]:
    def opens(second: int) -> int:
        return math.ceil((calendar.next_opening(now + timedelta(seconds=second)) - now).total_seconds())

    return opens
