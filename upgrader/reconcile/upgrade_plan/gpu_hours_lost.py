"""GPU-hours lost by a plan, from the times in the statuses of its ended upgrades and requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from upgrader.api.v1alpha1 import CheckpointRequest, GangShare, GroupStatus, NodeUpgrade, UpgradePlan
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.core.upgrade_plan.actual_loss import Outage, lost_gpu_hours

_NOTHING = GangShare()


def total_gpu_hours_lost(
    plan: UpgradePlan, upgrades: Sequence[NodeUpgrade], requests: Sequence[CheckpointRequest]
) -> float:
    """GPU-hours lost in ended batches, as summed up at their end, and in the open batch.

    A gang counts from its request, if it parked, else from its stop, until it passed its step,
    resumed training, or its request ended. A gang that was ended without a checkpoint also loses all since its start.
    """
    groups = {group.name: group for batch in plan.status.batches for group in batch.groups}
    here = [upgrade for upgrade in upgrades if upgrade.spec.group in groups]
    group_requests = [request for request in requests if request.spec.group in groups]
    return plan.status.ended.lost_gpu_hours + lost_gpu_hours(
        (outage for upgrade in here if (outage := _of_upgrade(upgrade)) is not None),
        (outage for request in group_requests for outage in _of_request(request, _share_of_request(groups, request))),
        [*_evicted_outages(groups.values(), here), *_terminated_outages(groups, group_requests)],
    )


def _share_of_request(groups: Mapping[str, GroupStatus], request: CheckpointRequest) -> GangShare:
    group = groups.get(request.spec.group or "")
    return group.shares.get(request.spec.gang, _NOTHING) if group is not None else _NOTHING


def _of_upgrade(upgrade: NodeUpgrade) -> Outage | None:
    steps = upgrade.status.steps
    begin = next((step.started_at for step in steps if step.name is NodePhase.UNLOADING), None)
    if begin is None or not is_final(upgrade.status.phase) or steps[-1].ended_at is None:
        return None
    return Outage(
        group=upgrade.spec.group,
        gpus=upgrade.status.found.gpus,
        begin=timing.parse_time(begin),
        end=timing.parse_time(steps[-1].ended_at),
    )


def _of_request(request: CheckpointRequest, share: GangShare) -> Iterator[Outage]:
    status, group = request.status, request.spec.group or ""
    asked = status.admitted_at or request.spec.asked_at
    begin, end = asked if status.parked_at is not None else status.stopped_at, status.ended_at
    if begin is not None and end is not None:
        yield Outage(group=group, gpus=share.gpus, begin=timing.parse_time(begin), end=timing.parse_time(end))
    if status.parked_seconds and is_final(status.phase):
        # Attempts before the last: only their duration is recorded, and that no upgrade had begun.
        until = timing.parse_time(request.spec.asked_at)
        earlier = timing.add_seconds(until, -status.parked_seconds)
        yield Outage(group=group, gpus=share.gpus, begin=earlier, end=until)


def _terminated_outages(groups: Mapping[str, GroupStatus], requests: Sequence[CheckpointRequest]) -> Iterator[Outage]:
    """Work of gangs that were stopped without an acknowledgement."""
    for request in requests:
        if request.status.terminated and request.status.stopped_at is not None:
            yield from _discarded_work(
                _share_of_request(groups, request),
                request.spec.group or "",
                timing.parse_time(request.status.stopped_at),
            )


def _evicted_outages(groups: Iterable[GroupStatus], upgrades: Iterable[NodeUpgrade]) -> Iterator[Outage]:
    """Work of pods without a controller: they are lost when their group is drained."""
    drained: dict[str, datetime] = {}
    for upgrade in upgrades:
        for step in upgrade.status.steps:
            if step.name is NodePhase.DRAINING and step.ended_at is not None:
                end = timing.parse_time(step.ended_at)
                drained[upgrade.spec.group] = max(end, drained.get(upgrade.spec.group, end))
    for group in groups:
        for gang in group.expendable if group.name in drained else ():
            yield from _discarded_work(group.shares.get(gang, _NOTHING), group.name, drained[group.name])


def _discarded_work(share: GangShare, group: str, end: datetime) -> Iterator[Outage]:
    if share.since is not None:
        yield Outage(group=group, gpus=share.gpus, begin=timing.parse_time(share.since), end=end)
