"""Which CheckpointRequests are a plan's own.

A right to create them in a single namespace is a right to give them any label, so none counts by its labels: its name
follows from plan, batch and gang, the plan is its controller by uid, it is in the gang's namespace, and the plan's
status has its gang in its group. Where the plan is gone, or what it knew, an upgrade of the same plan and group stands
for that: upgrades are of the cluster, and only the controller makes them.
"""

import re
from collections.abc import Iterable, Sequence

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core.model.phases import ends
from upgrader.reconcile.render.custom_objects import LABEL_BATCH, request_name
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context

Vouchers = frozenset[tuple[str, str, str, str]]
"""Plan, batch, group and the plan's uid of upgrades."""

SHOWN = 10


def vouchers(upgrades: Iterable[NodeUpgrade]) -> Vouchers:
    """What upgrades stand for."""
    return frozenset(
        (upgrade.spec.plan, _batch(upgrade.metadata), upgrade.spec.group, _controller(upgrade.metadata))
        for upgrade in upgrades
        if upgrade.spec.plan
    )


def is_own(request: CheckpointRequest, plan: UpgradePlan | None, vouched: Vouchers) -> bool:
    """Whether a request was made by the plan of its labels; `plan` is that plan, None where it is not there."""
    name, batch, uid = request.spec.plan, _batch(request.metadata), _controller(request.metadata)
    meta, gang, group = request.metadata, request.spec.gang, request.spec.group or ""
    if not name or not uid or meta.labels.get(names.LABEL_PLAN) != name:
        return False
    if meta.name != request_name(name, batch, gang) or meta.namespace != gang.partition("/")[0]:
        return False
    if plan is not None and plan.metadata.name == name and plan.metadata.uid == uid:
        number = int(batch) if re.fullmatch("[1-9][0-9]{0,8}", batch) else 0
        if 0 < number <= max((each.number for each in plan.status.batches), default=0):
            return _is_of(request, plan, number)
    return (name, batch, group, uid) in vouched


def ownerless(request: CheckpointRequest) -> bool:
    """Whether it names a plan and has no controller: no plan knows it as its own, so nobody drives it.

    Such a plan was deleted with `--cascade=orphan`, or there was none: a tenant made the request.
    """
    return bool(request.spec.plan) and not _controller(request.metadata)


def _is_of(request: CheckpointRequest, plan: UpgradePlan, number: int) -> bool:
    """Whether it is of a batch that the plan has started.

    Of batches that have ended the plan does not keep the groups: their requests have ended, and are only counted.
    """
    stored = [group for each in plan.status.batches if each.number == number for group in each.groups]
    if not stored:
        return ends(request.status.phase)
    return any(part.name == request.spec.group and request.spec.gang in part.gangs for part in stored)


def sort_out(
    requests: Sequence[CheckpointRequest], plan: UpgradePlan | None, upgrades: Iterable[NodeUpgrade]
) -> tuple[list[CheckpointRequest], list[CheckpointRequest]]:
    """Of the requests that carry a plan's label its own, and those that are not."""
    vouched = vouchers(upgrades)
    own: list[CheckpointRequest] = []
    others: list[CheckpointRequest] = []
    for request in requests:
        (own if is_own(request, plan, vouched) else others).append(request)
    return own, others


def shown(others: Iterable[CheckpointRequest]) -> list[str]:
    """Names for the plan's status, as NAMESPACE/NAME; bounded, since anybody may make any number of them."""
    return sorted(f"{request.metadata.namespace}/{request.metadata.name}" for request in others)[:SHOWN]


async def release(context: Context, others: Iterable[CheckpointRequest]) -> None:
    """Take the finalizer off those that are being deleted: nothing is stopped or marked by them.

    Of a request that was the plan's own until somebody changed it the record on the gang's owner is left, by which the
    stack restarts that.
    """
    for request in others:
        if request.metadata.deletion_timestamp is not None and names.FINALIZER in request.metadata.finalizers:
            await finalizers.take(context, CHECKPOINT_REQUESTS, request.metadata)


def _batch(meta: ObjectMeta) -> str:
    return meta.labels.get(LABEL_BATCH, "")


def _controller(meta: ObjectMeta) -> str:
    return next((owner.uid for owner in meta.owner_references if owner.controller), "")
