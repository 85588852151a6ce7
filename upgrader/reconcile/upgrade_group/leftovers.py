"""Node upgrades and requests that no started batch covers: their plan is gone, or what it knew of them.

They are taken back (law 9): upgrades that have switched nothing off end where they are, the others walk to their end,
and gangs are restarted.
"""

from collections.abc import Collection, Sequence

import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core.model.phases import ends
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_reconciler import Crowd
from upgrader.reconcile.upgrade_group.group_view import UpgradeGroup

log = structlog.get_logger()


async def take_back(
    context: Context,
    upgrades: Sequence[NodeUpgrade],
    requests: Sequence[CheckpointRequest],
    faults: Faults,
    covered: Collection[str] = frozenset(),
) -> bool:
    """One step of each group that is not `covered` (by name) and has not ended; whether there is one."""
    open_upgrades = {one.spec.group for one in upgrades if not ends(one.status.phase)}
    open_requests = {one.spec.group or "" for one in requests if not ends(one.status.phase)}
    left = sorted((open_upgrades | open_requests) - set(covered))
    for name in left:
        log.warning("taking back what no batch covers", group=name)
        with faults.contained(f"what no batch covers, upgrade group {name}"):
            await group_reconciler.go(context, _group(context, name, upgrades, requests), faults, Crowd(taken=True))
    return bool(left)


async def release(context: Context, requests: Sequence[CheckpointRequest]) -> None:
    """Let go of requests that have ended."""
    for one in requests:
        if ends(one.status.phase) and names.FINALIZER in one.metadata.finalizers:
            await finalizers.take(context, CHECKPOINT_REQUESTS, one.metadata)


def _group(
    context: Context, name: str, upgrades: Sequence[NodeUpgrade], requests: Sequence[CheckpointRequest]
) -> UpgradeGroup:
    group_upgrades = [one for one in upgrades if one.spec.group == name]
    group_requests = [one for one in requests if (one.spec.group or "") == name]
    targets = {one.spec.target.revision for one in group_upgrades}
    sources = {one.spec.source.revision for one in group_upgrades}
    # What the plan had written down of this is gone with it.
    known = {node.metadata.labels.get(names.LABEL_REVISION, "") for node in (context.nodes.snapshot() or {}).values()}
    return UpgradeGroup(
        name=name,
        resource=group_upgrades[0].spec.target.resource_name if group_upgrades else "",
        upgrades=group_upgrades,
        requests=group_requests,
        gangs=len(group_requests),
        undo=True,
        revisions_left=sorted((known | sources) - targets - {""}),
    )
