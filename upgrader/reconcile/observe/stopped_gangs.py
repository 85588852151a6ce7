"""Gangs that a plan has stopped, by its requests and its status; pure."""

from collections.abc import Sequence

from upgrader.api.v1alpha1 import CheckpointRequest, UpgradePlan
from upgrader.core.model.fleet import Snapshot
from upgrader.core.model.phases import RequestPhase


def stopped_owners(plan: UpgradePlan, requests: Sequence[CheckpointRequest]) -> frozenset[str]:
    """Uids of owners whose gangs the plan has stopped.

    The plan's status keeps owners of former requests, since requests can be removed by force.
    """
    told = {request.spec.owner.uid for request in requests if request.status.stopped_at is not None}
    return frozenset(plan.status.stopped_owners) | told


def stops_to_remember(plan: UpgradePlan, requests: Sequence[CheckpointRequest]) -> list[str]:
    """Owners for the plan's status, without those in phase Stopping, whose stop can still be withdrawn."""
    return sorted(
        stopped_owners(plan, [request for request in requests if request.status.phase is not RequestPhase.STOPPING])
    )


def stopped_gangs(plan: UpgradePlan, requests: Sequence[CheckpointRequest], snapshot: Snapshot) -> frozenset[str]:
    """Gangs that the plan has stopped once; a recreated job of the same name is another job."""
    uids = stopped_owners(plan, requests)
    return frozenset(gang.name for gang in snapshot.gangs if gang.owner is not None and gang.owner.uid in uids)
