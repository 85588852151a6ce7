"""What a rollout has cost so far, in GPU-hours, by the formula of its forecast (core.forecast.interruption_cost).

GPUs of nodes while they are upgraded, of gangs while they write a checkpoint and wait, and work that was thrown away.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct


class Outage(Struct, frozen=True, kw_only=True):
    """GPUs from `begin` to `end`: of an upgraded node, of a gang that did not train, or whose work of then is gone."""

    group: str
    gpus: int
    begin: datetime
    end: datetime


def lost_gpu_hours(upgrades: Iterable[Outage], gangs: Iterable[Outage], thrown: Iterable[Outage] = ()) -> float:
    """GPU-hours lost, rounded to ten-thousandths. While its nodes are upgraded a gang's GPUs count once, as the nodes'.

    `thrown`: work of gangs that were ended without a checkpoint, all since their start: the most that it can be.
    """
    away = list(upgrades)
    windows: dict[str, tuple[datetime, datetime]] = {}
    for one in away:
        begin, end = windows.get(one.group, (one.begin, one.end))
        windows[one.group] = (min(begin, one.begin), max(end, one.end))
    seconds = sum(one.gpus * (one.end - one.begin).total_seconds() for one in away)
    seconds += sum(one.gpus * _beside(one, windows.get(one.group)) for one in gangs)
    seconds += sum(one.gpus * (one.end - one.begin).total_seconds() for one in thrown)
    return round(seconds / 3600, 4)


def _beside(gang: Outage, window: tuple[datetime, datetime] | None) -> float:
    whole = (gang.end - gang.begin).total_seconds()
    if window is None:
        return whole
    shared = (min(gang.end, window[1]) - max(gang.begin, window[0])).total_seconds()
    return whole - max(0.0, shared)
