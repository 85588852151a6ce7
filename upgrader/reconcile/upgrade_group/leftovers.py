"""Node upgrades and requests that no started batch covers: their plan, or its record of them, was deleted.

They are reverted (law 9): upgrades that have switched nothing off end in their phase, the others complete, and gangs
are restarted.
"""

from collections.abc import Collection, Sequence

import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core.model.phases import is_final
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_reconciler import Crowd
from upgrader.reconcile.upgrade_group.group_view import OpenGroup

log = structlog.get_logger()


async def take_back(
    context: Context,
    upgrades: Sequence[NodeUpgrade],
    requests: Sequence[CheckpointRequest],
    faults: Faults,
    covered: Collection[str] = frozenset(),
) -> bool:
    """Step each open group whose name is not in `covered`; whether there is one."""
    open_upgrades = {upgrade.spec.group for upgrade in upgrades if not is_final(upgrade.status.phase)}
    open_requests = {request.spec.group or "" for request in requests if not is_final(request.status.phase)}
    left = sorted((open_upgrades | open_requests) - set(covered))
    for name in left:
        log.warning("removing objects that no batch covers", group=name)
        with faults.contained(f"objects that no batch covers, upgrade group {name}"):
            await group_reconciler.reconcile_group(
                context, _leftover_group(context, name, upgrades, requests), faults, Crowd(taken=True)
            )
    return bool(left)


async def drop_finalizers(context: Context, requests: Sequence[CheckpointRequest]) -> None:
    """Remove the finalizer of ended requests."""
    for request in requests:
        if is_final(request.status.phase) and names.FINALIZER in request.metadata.finalizers:
            await finalizers.remove_finalizer(context, CHECKPOINT_REQUESTS, request.metadata)


def _leftover_group(
    context: Context, name: str, upgrades: Sequence[NodeUpgrade], requests: Sequence[CheckpointRequest]
) -> OpenGroup:
    group_upgrades = [upgrade for upgrade in upgrades if upgrade.spec.group == name]
    group_requests = [request for request in requests if (request.spec.group or "") == name]
    targets = {upgrade.spec.target.revision for upgrade in group_upgrades}
    sources = {upgrade.spec.source.revision for upgrade in group_upgrades}
    # The plan's record of these was deleted with it.
    known = {node.metadata.labels.get(names.LABEL_REVISION, "") for node in (context.nodes.snapshot() or {}).values()}
    return OpenGroup(
        name=name,
        resource=group_upgrades[0].spec.target.resource_name if group_upgrades else "",
        upgrades=group_upgrades,
        requests=group_requests,
        gangs=len(group_requests),
        undo=True,
        revisions_left=sorted((known | sources) - targets - {""}),
    )
