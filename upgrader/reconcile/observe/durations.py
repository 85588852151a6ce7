"""How long things took on a stack: from its ended upgrades and from the requests of their plans."""

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


class Past(NamedTuple):
    """What was done before now."""

    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]


async def past_of(cluster: Cluster, stack: str, *, plan: str = "") -> Past:
    """Node upgrades of a stack and all requests; only those of one plan where it is named.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    mine = f"{names.LABEL_PLAN}={plan}" if plan else ""
    upgrades = await cluster.list(NODE_UPGRADES, labels=mine or f"{names.LABEL_STACK}={stack}")
    return Past(upgrades, await cluster.list(CHECKPOINT_REQUESTS, labels=mine))


async def durations_of(cluster: Cluster, stack: str) -> Durations:
    """What a forecast for this stack goes by: the defaults, and more and more what was seen.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    return seen(*await past_of(cluster, stack))


def seen(upgrades: Sequence[NodeUpgrade], requests: Sequence[CheckpointRequest]) -> Durations:
    """From the rollout upgrades that succeeded, and the gangs that came back, of the plans of these upgrades.

    Tainting counts for the checkpoint, since a request tells its gang's stop and not its acknowledgement.
    """
    done = [
        {step.name: step.started_at for step in one.status.steps}
        for one in upgrades
        if one.spec.reason is UpgradeReason.ROLLOUT and one.status.phase is NodePhase.SUCCEEDED
    ]
    vouched = own_requests.vouchers(upgrades)
    restored = (request for request in requests if request.status.phase is RequestPhase.RESTORED)
    back = [request.status for request in restored if own_requests.is_own(request, None, vouched)]
    return duration_model.learned(
        _between((one.get(NodePhase.DRAINING), one.get(NodePhase.RELEASING)) for one in done),
        checkpoints=_between((one.marked_at, one.stopped_at) for one in back),
        restarts=_between((one.restarted_at, one.restored_at) for one in back),
        preparations=_between((one.get(NodePhase.PREPARING), one.get(NodePhase.PREPARED)) for one in done),
    )


def _between(spans: Iterable[tuple[str | None, str | None]]) -> list[float]:
    """Seconds from one time to the other, where both are known."""
    return [
        (timing.parse(end) - timing.parse(start)).total_seconds()
        for start, end in spans
        if start is not None and end is not None
    ]
