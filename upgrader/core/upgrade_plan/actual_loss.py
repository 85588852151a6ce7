"""The actual loss of a rollout, in GPU-hours, by the formula of its forecast (core.forecast.interruption_cost).

It counts GPUs of nodes during their upgrade, GPUs of gangs while they write a checkpoint and wait, and discarded work.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct


class Outage(Struct, frozen=True, kw_only=True):
    """GPUs from `begin` to `end`: of an upgraded node, of a gang that did not train, or that lost its work of then."""

    group: str
    gpus: int
    begin: datetime
    end: datetime


def lost_gpu_hours(upgrades: Iterable[Outage], gangs: Iterable[Outage], thrown: Iterable[Outage] = ()) -> float:
    """GPU-hours lost, rounded to ten-thousandths. While its nodes are upgraded a gang's GPUs count once, as the nodes'.

    `thrown`: work of gangs that were ended without a checkpoint, since their start: the upper bound.
    """
    away = list(upgrades)
    windows: dict[str, tuple[datetime, datetime]] = {}
    for node in away:
        begin, end = windows.get(node.group, (node.begin, node.end))
        windows[node.group] = (min(begin, node.begin), max(end, node.end))
    seconds = sum(node.gpus * (node.end - node.begin).total_seconds() for node in away)
    seconds += sum(gang.gpus * _seconds_beside(gang, windows.get(gang.group)) for gang in gangs)
    seconds += sum(gang.gpus * (gang.end - gang.begin).total_seconds() for gang in thrown)
    return round(seconds / 3600, 4)


def _seconds_beside(gang: Outage, window: tuple[datetime, datetime] | None) -> float:
    whole = (gang.end - gang.begin).total_seconds()
    if window is None:
        return whole
    shared = (min(gang.end, window[1]) - max(gang.begin, window[0])).total_seconds()
    return whole - max(0.0, shared)
