"""GPU-hours that a plan has cost: its upgrades and requests that are over, as their statuses tell their times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from upgrader.api.v1alpha1 import CheckpointRequest, GangShare, GroupStatus, NodeUpgrade, UpgradePlan
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, ends
from upgrader.core.upgrade_plan.actual_loss import Outage, lost_gpu_hours

_NOTHING = GangShare()


def lost(plan: UpgradePlan, upgrades: Sequence[NodeUpgrade], requests: Sequence[CheckpointRequest]) -> float:
    """GPU-hours: of the batches that have ended as they were summed up then, and of the one that is under way.

    A gang counts from when it was asked, if it parked then, else from its stop; until it was seen past its step,
    trained on, or was given up. What was ended without a checkpoint also lost all since its start.
    """
    groups = {one.name: one for batch in plan.status.batches for one in batch.groups}
    here = [one for one in upgrades if one.spec.group in groups]
    group_requests = [one for one in requests if one.spec.group in groups]
    return plan.status.ended.lost_gpu_hours + lost_gpu_hours(
        (outage for one in here if (outage := _of_upgrade(one)) is not None),
        (outage for one in group_requests for outage in _of_request(one, _share(groups, one))),
        [*_evicted(groups.values(), here), *_terminated(groups, group_requests)],
    )


def _share(groups: Mapping[str, GroupStatus], request: CheckpointRequest) -> GangShare:
    group = groups.get(request.spec.group or "")
    return group.shares.get(request.spec.gang, _NOTHING) if group is not None else _NOTHING


def _of_upgrade(upgrade: NodeUpgrade) -> Outage | None:
    steps = upgrade.status.steps
    begin = next((one.started_at for one in steps if one.name is NodePhase.UNLOADING), None)
    if begin is None or not ends(upgrade.status.phase) or steps[-1].ended_at is None:
        return None
    return Outage(
        group=upgrade.spec.group,
        gpus=upgrade.status.found.gpus,
        begin=timing.parse(begin),
        end=timing.parse(steps[-1].ended_at),
    )


def _of_request(request: CheckpointRequest, share: GangShare) -> Iterator[Outage]:
    status, group = request.status, request.spec.group or ""
    asked = status.marked_at or request.spec.asked_at
    begin, end = asked if status.parked_at is not None else status.stopped_at, status.ended_at
    if begin is not None and end is not None:
        yield Outage(group=group, gpus=share.gpus, begin=timing.parse(begin), end=timing.parse(end))
    if status.parked_seconds and ends(status.phase):
        # Askings before the last: only how long they took is known, and that no upgrade had begun.
        until = timing.parse(request.spec.asked_at)
        earlier = timing.after(until, -status.parked_seconds)
        yield Outage(group=group, gpus=share.gpus, begin=earlier, end=until)


def _terminated(groups: Mapping[str, GroupStatus], requests: Sequence[CheckpointRequest]) -> Iterator[Outage]:
    """Work of gangs that were stopped without an acknowledgement."""
    for one in requests:
        if one.status.terminated and one.status.stopped_at is not None:
            yield from _thrown(_share(groups, one), one.spec.group or "", timing.parse(one.status.stopped_at))


def _evicted(groups: Iterable[GroupStatus], upgrades: Iterable[NodeUpgrade]) -> Iterator[Outage]:
    """Work of pods that nobody makes again: they go when their group is drained."""
    drained: dict[str, datetime] = {}
    for upgrade in upgrades:
        for step in upgrade.status.steps:
            if step.name is NodePhase.DRAINING and step.ended_at is not None:
                end = timing.parse(step.ended_at)
                drained[upgrade.spec.group] = max(end, drained.get(upgrade.spec.group, end))
    for group in groups:
        for gang in group.expendable if group.name in drained else ():
            yield from _thrown(group.shares.get(gang, _NOTHING), group.name, drained[group.name])


def _thrown(share: GangShare, group: str, end: datetime) -> Iterator[Outage]:
    if share.since is not None:
        yield Outage(group=group, gpus=share.gpus, begin=timing.parse(share.since), end=end)
