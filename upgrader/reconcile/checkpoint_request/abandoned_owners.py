"""Stopped owners without a CheckpointRequest: found by the record on the owner, restarted and shown.

A request is deleted only after its gang was restarted. If it is deleted earlier, its finalizer was removed by force, or
its namespace was restored without it. The owner's record outlives both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import structlog

from upgrader.api.kubernetes import Node, ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointRequest, GpuStack, UpgradePlan
from upgrader.api.v1alpha1.checkpoint_request import OwnerRef
from upgrader.core import timing
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError
from upgrader.core.model.fleet import StoppedOwner
from upgrader.core.model.phases import PlanPhase, is_final
from upgrader.core.patches import value_at, values_at
from upgrader.core.workloads import placement, suspend_patches
from upgrader.core.workloads.owner_kinds import Switch
from upgrader.core.workloads.shelter import Shelter, find_shelter
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.runtime.conditions import ConditionContent
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

CONDITION = "StoppedOwners"
SHOWN = 10
LATE = timedelta(minutes=30)
"""From the first pass that finds such an owner until it is restarted regardless of where its pods run."""


class AbandonedOwner(msgspec.Struct, frozen=True, kw_only=True):
    """An owner without a request, and what its restart waits for."""

    stopped: StoppedOwner
    why: str


async def restart_owners(
    context: Context,
    recorded: Sequence[StoppedOwner],
    plans: Sequence[UpgradePlan],
    *,
    resource: str,
    late: bool | None,
) -> list[AbandonedOwner]:
    """Restart owners without a request; returns those that are not restarted yet.

    Args:
        context: ports.
        recorded: owners with a stop record, read before this call.
        plans: all plans of the stack.
        resource: extended resource whose devices are GPUs.
        late: whether the wait is over, so that each is restarted regardless of where its pods run; None: no earlier
            pass has found such owners, and the first pass does nothing.

    Raises:
        ClusterError: the requests or the owners cannot be read, so nothing is done.
    """
    owners = await _without_request(context, recorded)
    if late is None:
        # The record may have been removed since the read, which is no reason for an alarm.
        return [
            AbandonedOwner(stopped=owner, why="it is read again in the next step")
            for owner in owners
            if await _has_stop_record(context, owner)
        ]
    left: list[AbandonedOwner] = []
    for owner in owners:
        wanted = next((plan.spec.target_revision for plan in plans if _drives_restart(plan, owner)), "")
        try:
            why = await _restart_owner(context, owner, wanted, resource, late=late)
        except (ConflictError, NotFoundError) as error:
            why = f"it is retried: {error.brief}"
        except REFUSED as error:
            if not error.refused:
                raise
            why = error.brief
        if why:
            left.append(AbandonedOwner(stopped=owner, why=why))
    return left


def found_since(stack: GpuStack) -> datetime | None:
    """When the stack's status first listed such owners; None while it lists none."""
    for condition in stack.status.conditions:
        if condition.type == CONDITION and condition.status == "True" and condition.last_transition_time is not None:
            return timing.parse_time(condition.last_transition_time)
    return None


def is_overdue(stack: GpuStack, now: datetime) -> bool | None:
    """Whether the stack's status has listed such owners for `LATE`; None while it lists none."""
    since = found_since(stack)
    return None if since is None else now >= since + LATE


def stopped_owners_condition(stack: GpuStack, left: Sequence[AbandonedOwner]) -> Iterator[ConditionContent]:
    """The condition StoppedOwners: True while there are such owners; absent until there were any."""
    if left:
        which = "; ".join(
            f"{abandoned.stopped.shown} (plan {abandoned.stopped.plan}): {abandoned.why}" for abandoned in left[:SHOWN]
        )
        message = f"{len(left)} stopped owner(s) no longer have a CheckpointRequest and are restarted: {which}"
        yield ConditionContent(CONDITION, "True", "RequestGone", message)
    elif any(condition.type == CONDITION for condition in stack.status.conditions):
        yield ConditionContent(CONDITION, "False", "NoneStopped", "every stopped owner has its CheckpointRequest")


def _drives_restart(plan: UpgradePlan, stopped: StoppedOwner) -> bool:
    under_way = plan.status.phase in {PlanPhase.RUNNING, PlanPhase.PAUSED}
    return plan.metadata.name == stopped.plan and under_way


async def _without_request(context: Context, recorded: Sequence[StoppedOwner]) -> list[StoppedOwner]:
    """Owners whose request does not exist or has ended; requests are listed after the owners, and completely."""
    if not recorded:
        return []
    listed = await context.cluster.list(CHECKPOINT_REQUESTS)
    under_way = await _open_requests(context, listed)
    return [owner for owner in recorded if (owner.namespace, owner.request) not in under_way]


async def _has_stop_record(context: Context, stopped: StoppedOwner) -> bool:
    try:
        owner = await live_owners.read_owner(
            context, OwnerRef(**msgspec.structs.asdict(stopped.owner)), stopped.namespace
        )
    except REFUSED as error:
        if not error.refused:
            raise
        return True
    record = suspend_patches.record_of(owner.meta.annotations) if owner.body is not None else None
    return bool(owner.unread) or (record is not None and record.request == stopped.request)


async def _open_requests(context: Context, listed: Sequence[CheckpointRequest]) -> set[tuple[str, str]]:
    """Open requests of a plan or of its upgrades; requests that no plan has created are not reconciled."""
    plans = {plan.metadata.name: plan for plan in await context.cluster.list(UPGRADE_PLANS)}
    vouched = own_requests.find_vouchers(await context.cluster.list(NODE_UPGRADES))
    return {
        (request.metadata.namespace, request.metadata.name)
        for request in listed
        if not is_final(request.status.phase)
        and own_requests.is_own(request, plans.get(request.spec.plan or ""), vouched)
    }


async def _restart_owner(context: Context, stopped: StoppedOwner, wanted: str, resource: str, *, late: bool) -> str:
    """Restart one owner after a fresh read; returns why it waits, else empty."""
    ref = OwnerRef(**msgspec.structs.asdict(stopped.owner))
    owner = await live_owners.read_owner(context, ref, stopped.namespace)
    if owner.unread:
        return owner.unread
    record = suspend_patches.record_of(owner.meta.annotations) if owner.body is not None else None
    if record is None or record.request != stopped.request:
        return ""
    named = f"metadata.name={stopped.request}"
    again = await context.cluster.list(CHECKPOINT_REQUESTS, stopped.namespace, fields=named)
    if await _open_requests(context, again):
        return ""
    shelter = await _choose_shelter(context, owner, wanted, resource, late=late)
    off = suspend_patches.is_off(owner.row, owner.present)
    if off and shelter.why:
        return shelter.why
    context.leadership.check()
    if off and owner.row.switch is Switch.COMMAND:
        await live_owners.order_on(
            context, owner, stopped.request
        )  # the record stays until the owner is observed to be on
        return "its resume was requested; its controller has not resumed it yet"
    await live_owners.resume_owner(context, owner, stopped.request, shelter.placement)
    log.warning(
        "owner restarted without its CheckpointRequest", owner=stopped.shown, plan=stopped.plan, request=stopped.request
    )
    await context.cluster.event(
        ObjectMeta(name=owner.meta.name, namespace=owner.meta.namespace, uid=owner.meta.uid),
        owner.resource.kind,
        owner.resource.api_version,
        reason="RestartedAfterUpgrade",
        message=f"stopped for plan {stopped.plan} and restarted: CheckpointRequest {stopped.request} was deleted",
        warning=True,
    )
    return ""


async def _choose_shelter(context: Context, owner: LiveOwner, wanted: str, resource: str, *, late: bool) -> Shelter:
    nodes = [node_facts(node, resource) for node in _selectable_nodes(owner, context.nodes.snapshot() or {})]
    steerable = placement.is_steerable(owner.row, await context.cluster.version())
    return find_shelter(nodes, wanted, steerable=steerable, late=late)


def _selectable_nodes(owner: LiveOwner, nodes: Mapping[str, Node]) -> Iterable[Node]:
    """Nodes that the node selectors of its templates allow; all nodes if it has none."""
    wishes = [
        value_at(template, ("spec", "nodeSelector")) or {}
        for path in owner.row.templates
        for template in values_at(owner.body, path)
    ]
    for node in nodes.values():
        labels = node.metadata.labels
        if not wishes or any(all(labels.get(key) == value for key, value in wish.items()) for wish in wishes):
            yield node
