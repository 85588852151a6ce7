"""Ended batches of a plan: their sums stay in its status, their groups do not.

A plan that retries starts any number of batches, and an object in etcd is limited to 1.5 MB.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from upgrader.api.explicit import explicit_json
from upgrader.api.v1alpha1 import BatchStatus, CanaryStatus, EndedBatches, NodeUpgrade, UpgradePlan
from upgrader.core.forecast.forecast import BatchKind
from upgrader.reconcile.render.custom_objects import LABEL_BATCH

SHOWN = 10
"""Ended batches that the status lists, for people."""


def started_batches(plan: UpgradePlan) -> int:
    """The number of batches that the plan has started, which is the number of the latest."""
    return plan.status.ended.count + sum(batch.ended_at is None for batch in plan.status.batches)


def fold_open_batch(
    plan: UpgradePlan, upgrades: Sequence[NodeUpgrade], now: str, *, lost: float, terminated: int
) -> dict[str, Any]:
    """The part of a status in which the open batch has ended; all its objects have ended, so its sums are final.

    `lost` and `terminated`: of all batches, including the open one.
    """
    batches = [batch if batch.ended_at is not None else _fold_batch(batch, now) for batch in plan.status.batches]
    known = {(upgrade.metadata.labels.get(LABEL_BATCH, ""), upgrade.spec.node.name) for upgrade in upgrades}
    ended = EndedBatches(
        count=started_batches(plan),
        lost_gpu_hours=lost,
        terminated=terminated,
        canaries=[canary for canary in all_canaries(plan) if (str(canary.batch), canary.node) in known],
    )
    return {"batches": [msgspec.to_builtins(batch) for batch in batches[-SHOWN:]], "ended": explicit_json(ended)}


def all_canaries(plan: UpgradePlan) -> list[CanaryStatus]:
    """Canaries of all batches, each with its node class."""
    under_way = [batch for batch in plan.status.batches if batch.ended_at is None and batch.kind is BatchKind.CANARY]
    return [
        *plan.status.ended.canaries,
        *(
            CanaryStatus(batch=batch.number, node=node, node_class=name)
            for batch in under_way
            for node, name in batch.classes.items()
        ),
    ]


def _fold_batch(batch: BatchStatus, now: str) -> BatchStatus:
    nodes = sum(len(group.nodes) for group in batch.groups)
    gangs = sum(len(group.gangs) for group in batch.groups)
    return msgspec.structs.replace(batch, groups=[], classes={}, ended_at=now, node_count=nodes, gang_count=gangs)
