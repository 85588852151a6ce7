"""Ownership of CheckpointRequests by plans.

A tenant that may create requests in a namespace may set any label, so labels alone do not count: the name of an own
request follows from plan, batch and gang, the plan is its controller by uid, it is in the gang's namespace, and the
plan's status has its gang in its group. If the plan or its record is deleted, an upgrade of the same plan and group
vouches for it: upgrades are cluster-scoped, and only the controller creates them.
"""

import re
from collections.abc import Iterable, Sequence

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core.model.phases import is_final
from upgrader.reconcile.render.custom_objects import LABEL_BATCH, request_name
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context

Vouchers = frozenset[tuple[str, str, str, str]]
"""Plan, batch, group and the plan's uid of upgrades."""

SHOWN = 10


def find_vouchers(upgrades: Iterable[NodeUpgrade]) -> Vouchers:
    """The requests that upgrades vouch for."""
    return frozenset(
        (upgrade.spec.plan, _batch_label(upgrade.metadata), upgrade.spec.group, _controller_uid(upgrade.metadata))
        for upgrade in upgrades
        if upgrade.spec.plan
    )


def is_own(request: CheckpointRequest, plan: UpgradePlan | None, vouched: Vouchers) -> bool:
    """Whether the plan in its labels created a request; `plan` is that plan, None if it does not exist."""
    name, batch, uid = request.spec.plan, _batch_label(request.metadata), _controller_uid(request.metadata)
    meta, gang, group = request.metadata, request.spec.gang, request.spec.group or ""
    if not name or not uid or meta.labels.get(names.LABEL_PLAN) != name:
        return False
    if meta.name != request_name(name, batch, gang) or meta.namespace != gang.partition("/")[0]:
        return False
    if plan is not None and plan.metadata.name == name and plan.metadata.uid == uid:
        number = int(batch) if re.fullmatch("[1-9][0-9]{0,8}", batch) else 0
        if 0 < number <= max((batch.number for batch in plan.status.batches), default=0):
            return _is_of(request, plan, number)
    return (name, batch, group, uid) in vouched


def is_ownerless(request: CheckpointRequest) -> bool:
    """Whether a request names a plan and has no controller: no plan owns it, so it is not reconciled.

    The plan was deleted with `--cascade=orphan`, or a tenant created the request.
    """
    return bool(request.spec.plan) and not _controller_uid(request.metadata)


def _is_of(request: CheckpointRequest, plan: UpgradePlan, number: int) -> bool:
    """Whether a request belongs to a started batch of the plan.

    The plan does not keep the groups of ended batches: their requests have ended, and are only counted.
    """
    stored = [group for batch in plan.status.batches if batch.number == number for group in batch.groups]
    if not stored:
        return is_final(request.status.phase)
    return any(part.name == request.spec.group and request.spec.gang in part.gangs for part in stored)


def sort_out(
    requests: Sequence[CheckpointRequest], plan: UpgradePlan | None, upgrades: Iterable[NodeUpgrade]
) -> tuple[list[CheckpointRequest], list[CheckpointRequest]]:
    """Split requests with a plan's label into its own and others."""
    vouched = find_vouchers(upgrades)
    own: list[CheckpointRequest] = []
    others: list[CheckpointRequest] = []
    for request in requests:
        (own if is_own(request, plan, vouched) else others).append(request)
    return own, others


def shown_names(others: Iterable[CheckpointRequest]) -> list[str]:
    """Names for the plan's status, as NAMESPACE/NAME; bounded, since tenants may create any number of requests."""
    return sorted(f"{request.metadata.namespace}/{request.metadata.name}" for request in others)[:SHOWN]


async def drop_finalizers(context: Context, others: Iterable[CheckpointRequest]) -> None:
    """Remove the finalizer from others' requests that are being deleted: they have stopped no gang.

    If the request was the plan's own until it was changed, the stack restarts its gang by the record on the owner.
    """
    for request in others:
        if request.metadata.deletion_timestamp is not None and names.FINALIZER in request.metadata.finalizers:
            await finalizers.remove_finalizer(context, CHECKPOINT_REQUESTS, request.metadata)


def _batch_label(meta: ObjectMeta) -> str:
    return meta.labels.get(LABEL_BATCH, "")


def _controller_uid(meta: ObjectMeta) -> str:
    return next((owner.uid for owner in meta.owner_references if owner.controller), "")
