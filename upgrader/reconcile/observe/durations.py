"""Durations on a stack, learned from its ended upgrades and the requests of their plans."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import timing
from upgrader.core.forecast import duration_model
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason
from upgrader.core.model.prediction import Durations
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.ports import Cluster


class UpgradeHistory(NamedTuple):
    """Past node upgrades and requests."""

    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]


async def past_of(cluster: Cluster, stack: str, *, plan: str = "") -> UpgradeHistory:
    """Node upgrades of a stack and all requests; only those of `plan` if it is given.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    mine = f"{names.LABEL_PLAN}={plan}" if plan else ""
    upgrades = await cluster.list(NODE_UPGRADES, labels=mine or f"{names.LABEL_STACK}={stack}")
    return UpgradeHistory(upgrades, await cluster.list(CHECKPOINT_REQUESTS, labels=mine))


async def durations_of(cluster: Cluster, stack: str) -> Durations:
    """Durations for a forecast of this stack: the defaults, weighted with observed durations.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    return learn_durations(*await past_of(cluster, stack))


def learn_durations(upgrades: Sequence[NodeUpgrade], requests: Sequence[CheckpointRequest]) -> Durations:
    """Durations from succeeded rollout upgrades, and from restored gangs of their plans.

    The checkpoint includes tainting, since a request records its gang's stop and not its acknowledgement.
    """
    done = [
        {step.name: step.started_at for step in upgrade.status.steps}
        for upgrade in upgrades
        if upgrade.spec.reason is UpgradeReason.ROLLOUT and upgrade.status.phase is NodePhase.SUCCEEDED
    ]
    vouched = own_requests.find_vouchers(upgrades)
    restored = (request for request in requests if request.status.phase is RequestPhase.RESTORED)
    back = [request.status for request in restored if own_requests.is_own(request, None, vouched)]
    return duration_model.measured_durations(
        _seconds_between(
            (step_times.get(NodePhase.DRAINING), step_times.get(NodePhase.RELEASING)) for step_times in done
        ),
        checkpoints=_seconds_between((status.admitted_at, status.stopped_at) for status in back),
        restarts=_seconds_between((status.restarted_at, status.restored_at) for status in back),
        preparations=_seconds_between(
            (step_times.get(NodePhase.PREPARING), step_times.get(NodePhase.PREPARED)) for step_times in done
        ),
    )


def _seconds_between(spans: Iterable[tuple[str | None, str | None]]) -> list[float]:
    """Seconds between two times, if both are known."""
    return [
        (timing.parse_time(end) - timing.parse_time(start)).total_seconds()
        for start, end in spans
        if start is not None and end is not None
    ]
