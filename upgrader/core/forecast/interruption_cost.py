"""The cost of a rollout in GPU-hours, gang by gang, and the lower bound of all orders of upgrades.

Loss = GPUs of each upgraded node x its upgrade, plus for each stopped gang its GPUs x (parked + checkpoint + wait
beyond its nodes' upgrade + restart), plus discarded work. The lower bound has the same upgrades, and checkpoint and
restart of the gangs that do not end by themselves. A node's upgrade includes the wait for the other nodes of its group.
All durations are expectations.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from upgrader.core.constraints.blockers import IndexedSnapshot
from upgrader.core.forecast.bin_packing import Batch, Unit
from upgrader.core.forecast.context import Frame
from upgrader.core.forecast.schedule import Leg
from upgrader.core.model.fleet import Gang
from upgrader.core.model.prediction import Completion, Interruption

_HOUR = 3600


class RolloutLosses(Struct, frozen=True, kw_only=True):
    """Losses of a rollout, in GPU-hours."""

    lost: float
    bound: float
    interruptions: tuple[Interruption, ...]


def rollout_losses(legs: Sequence[Leg], completions: Iterable[Completion], frame: Frame) -> RolloutLosses:
    """Losses of all nodes in batches or waited for; blocked nodes cost nothing yet."""
    alone = frame.pace.upgrade_duration(1).mean
    lost = bound = sum(alone * frame.limits.pool.sizes[node] for completion in completions for node in completion.nodes)
    interruptions: list[Interruption] = []
    for leg in legs:
        for unit in leg.batch.units:
            group = unit.group
            upgrades = frame.pace.upgrade_duration(len(group.nodes)).mean * sum(
                frame.limits.pool.sizes[node] for node in group.nodes
            )
            lost, bound = lost + upgrades, bound + upgrades
            for name in group.gangs:
                stop = _Stop(gang=frame.world.gangs[name], unit=unit, batch=leg.batch, start=leg.start)
                lost, bound = lost + _lost_gpu_seconds(stop, frame), bound + _unavoidable_gpu_seconds(stop, frame)
                interruptions.append(_make_interruption(stop, frame))
    order = sorted(interruptions, key=lambda interruption: (interruption.asked_at, interruption.gang))
    return RolloutLosses(lost=_gpu_hours(lost), bound=_gpu_hours(bound), interruptions=tuple(order))


class _Stop(Struct, frozen=True, kw_only=True):
    gang: Gang
    unit: Unit
    batch: Batch
    start: int


def _gpu_hours(gpu_seconds: float) -> float:
    return round(gpu_seconds / _HOUR, 3)


def without_checkpoint(gang: Gang) -> bool:
    """Whether it gets no request: if it is expendable, its pods are ended, and its work is lost."""
    return gang.bare or gang.method in {"", "none"}


def _pause_seconds(stop: _Stop, frame: Frame) -> tuple[float, float]:
    """Seconds of checkpoint and restart."""
    checkpoint = next((request.seconds for request in stop.unit.asked if request.gang == stop.gang.name), 0.0)
    return checkpoint, 0.0 if stop.gang.bare else frame.pace.restart_duration(1).mean


def _lost_gpu_seconds(stop: _Stop, frame: Frame) -> float:
    """GPU-seconds beyond the upgrades of its nodes."""
    checkpoint, restart = _pause_seconds(stop, frame)
    upgrade = frame.pace.upgrade_duration(len(stop.unit.group.nodes)).mean
    elsewhere = sum(member.gpus for member in stop.gang.members if member.node not in stop.unit.group.nodes)
    parked = stop.batch.parked.get(stop.gang.name, 0.0)
    own = stop.gang.gpus * (parked + checkpoint + restart) + elsewhere * upgrade
    return own + _discarded_gpu_seconds(stop, frame)


def _unavoidable_gpu_seconds(stop: _Stop, frame: Frame) -> float:
    until = frame.world.strategy.completion_until
    ends = stop.gang.ends_at
    if until is not None and ends is not None and ends <= until:
        return 0.0
    return stop.gang.gpus * sum(_pause_seconds(stop, frame))


def _discarded_gpu_seconds(stop: _Stop, frame: Frame) -> float:
    """All work since the latest start of a gang without a checkpoint: the upper bound."""
    started = [member.started_at for member in stop.gang.members if member.started_at is not None]
    if not without_checkpoint(stop.gang) or not started:
        return 0.0
    return stop.gang.gpus * max(0.0, (_asked_at(stop, frame) - max(started)).total_seconds())


def _asked_at(stop: _Stop, frame: Frame) -> datetime:
    prepare = frame.pace.preparation_duration(len(stop.unit.group.nodes)).mean
    return frame.time_at(stop.start + round(prepare + stop.batch.turns.get(stop.gang.name, 0.0)))


def _make_interruption(stop: _Stop, frame: Frame) -> Interruption:
    checkpoint, restart = _pause_seconds(stop, frame)
    parked = stop.batch.parked.get(stop.gang.name, 0.0)
    seconds = parked + checkpoint + frame.pace.upgrade_duration(len(stop.unit.group.nodes)).mean + restart
    return Interruption(
        gang=stop.gang.name,
        gpus=stop.gang.gpus,
        asked_at=_asked_at(stop, frame),
        seconds=round(seconds),
        lost_gpu_hours=_gpu_hours(stop.gang.gpus * seconds + _discarded_gpu_seconds(stop, frame)),
        because=_explain_interruption(stop, frame.world),
    )


def _explain_interruption(stop: _Stop, world: IndexedSnapshot) -> str:
    nodes = [node for node in stop.unit.group.nodes if node in stop.gang.nodes]
    findings = world.drift[nodes[0]].findings if nodes else ()
    first = next((finding.message for finding in findings if finding.counts), "")
    shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    way = "ended without a checkpoint, as the approval allows" if without_checkpoint(stop.gang) else "stopped"
    lanes = bool(stop.gang.lane and world.strategy.lane_width)
    lane = f"Its checkpoint goes through {stop.gang.lane_shown}." if lanes else ""
    return " ".join(part for part in (f"It runs on {shown} and is {way}.", first, lane) if part)
