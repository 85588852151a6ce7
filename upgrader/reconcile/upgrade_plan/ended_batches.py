"""Batches of a plan that have ended: their sums stay in its status, their groups do not.

A plan that asks again and again starts batches without end, and an object of etcd holds 1.5 MB at most.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from upgrader.api.explicit import explicit
from upgrader.api.v1alpha1 import BatchStatus, CanaryStatus, EndedBatches, NodeUpgrade, UpgradePlan
from upgrader.core.forecast.forecast import BatchKind
from upgrader.reconcile.render.custom_objects import LABEL_BATCH

SHOWN = 10
"""Ended batches that the status still lists, for people."""


def started(plan: UpgradePlan) -> int:
    """How many batches the plan has started: the number of the latest."""
    return plan.status.ended.count + sum(one.ended_at is None for one in plan.status.batches)


def fold(
    plan: UpgradePlan, upgrades: Sequence[NodeUpgrade], now: str, *, lost: float, terminated: int
) -> dict[str, Any]:
    """The part of a status in which the open batch has ended; everything of it has, so its sums are final.

    `lost` and `terminated`: of all batches, this one too.
    """
    batches = [one if one.ended_at is not None else _folded(one, now) for one in plan.status.batches]
    known = {(one.metadata.labels.get(LABEL_BATCH, ""), one.spec.node.name) for one in upgrades}
    ended = EndedBatches(
        count=started(plan),
        lost_gpu_hours=lost,
        terminated=terminated,
        canaries=[one for one in canaries(plan) if (str(one.batch), one.node) in known],
    )
    return {"batches": [msgspec.to_builtins(one) for one in batches[-SHOWN:]], "ended": explicit(ended)}


def canaries(plan: UpgradePlan) -> list[CanaryStatus]:
    """Canaries of all batches, each with its class."""
    under_way = [one for one in plan.status.batches if one.ended_at is None and one.kind is BatchKind.CANARY]
    return [
        *plan.status.ended.canaries,
        *(
            CanaryStatus(batch=one.number, node=node, node_class=name)
            for one in under_way
            for node, name in one.classes.items()
        ),
    ]


def _folded(batch: BatchStatus, now: str) -> BatchStatus:
    nodes = sum(len(one.nodes) for one in batch.groups)
    gangs = sum(len(one.gangs) for one in batch.groups)
    return msgspec.structs.replace(batch, groups=[], classes={}, ended_at=now, node_count=nodes, gang_count=gangs)
