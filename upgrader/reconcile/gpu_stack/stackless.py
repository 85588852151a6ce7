"""Cleanup of stopped gangs, annotated pods and closed nodes that belong to no GpuStack (law 9).

Stack, plan and request may all be deleted, also by force and while no controller leads. Stopped gangs are found by the
record on their owner, requested members by the annotations of their pods, closed nodes by their claim. Every stack
handles owners and pods; only the stacks that select a node handle that node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import CONTROLLER_REVISIONS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.fleet import Target
from upgrader.core.model.phases import is_final
from upgrader.core.workloads.owner_objects import stopped_owners
from upgrader.reconcile.checkpoint_request import abandoned_owners
from upgrader.reconcile.checkpoint_request.orphaned_annotations import (
    annotated_pods,
    note_refused_pods,
    remove_annotations,
)
from upgrader.reconcile.gpu_stack.closed_nodes import ClosedNodes
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.telemetry import metrics

log = structlog.get_logger()

KIND, NAME = "Cluster", "without-stacks"
"""Key of the loop, which belongs to no object."""
PAUSE_SECONDS = 60.0
"""Pause after a pass that found nothing to do."""


@dataclass(kw_only=True)
class StacklessPass:
    """The step of that loop. Its memory is a hint: without it, a restart of a gang takes one more pass."""

    waiting: str = ""
    """Owners that the previous pass found, as logged; empty: none."""
    nodes: ClosedNodes = field(default_factory=ClosedNodes)

    async def run_pass(self, context: Context, _name: str = NAME) -> float:
        """One pass; returns seconds until the next.

        Raises:
            ClusterError: the API server refused or did not answer; the step is repeated.
        """
        faults, listed = Faults(kind=KIND), await context.cluster.list(GPU_STACKS)
        stacks = [stack for stack in listed if stack.metadata.deletion_timestamp is None]
        left = [] if stacks else await self._take_back(context, faults)
        more = await self.nodes.release_nodes(context, stacks, faults)
        metrics.show_faults(KIND, NAME, len(faults.errors) + len(self.nodes.closed))
        faults.raise_fatal()
        self._log_stopped(left)
        if left or (more and not faults.errors):
            return context.active_seconds
        return context.idle_seconds if faults.errors else PAUSE_SECONDS

    async def _take_back(self, context: Context, faults: Faults) -> list[abandoned_owners.AbandonedOwner]:
        """Restart gangs and remove request annotations from pods; returns gangs that stay stopped."""
        workload = await context.workloads.read(context.cluster)
        left: list[abandoned_owners.AbandonedOwner] = []
        with faults.contained("stopped owners"):
            upgrades = await context.cluster.list(NODE_UPGRADES)
            left = await abandoned_owners.restart_owners(
                context,
                stopped_owners(workload.works),
                await context.cluster.list(UPGRADE_PLANS),
                resource=await _gpu_resource_name(context, upgrades),
                late=_all_upgrades_ended(upgrades) if self.waiting else None,
            )
        with faults.contained("pods whose requests were deleted"):
            note_refused_pods(await remove_annotations(context, annotated_pods(workload.pods)), faults)
        return left

    def _log_stopped(self, left: Sequence[abandoned_owners.AbandonedOwner]) -> None:
        """Log stopped owners, once for each change, since there is no status to show them in."""
        owners = "; ".join(
            f"{abandoned.stopped.shown} (plan {abandoned.stopped.plan}): {abandoned.why}" for abandoned in left
        )
        if owners and owners != self.waiting:
            log.warning("owners stay stopped, and no GpuStack exists", owners=owners)
        self.waiting = owners


def _all_upgrades_ended(upgrades: Sequence[NodeUpgrade]) -> bool:
    """Whether all upgrades have ended, so that no node comes back that a restart could wait for."""
    return all(is_final(upgrade.status.phase) for upgrade in upgrades)


async def _gpu_resource_name(context: Context, upgrades: Sequence[NodeUpgrade]) -> str:
    """The extended resource of GPUs: that of the latest upgrade, else of the latest kept revision."""
    if upgrades:
        return max(upgrades, key=lambda upgrade: upgrade.metadata.creation_timestamp or "").spec.target.resource_name
    listed = await context.cluster.list(CONTROLLER_REVISIONS, context.stack.namespace, labels=names.LABEL_STACK)
    kept = [revision for revision in listed if not revision.metadata.owner_references]
    if not kept:
        return ""
    latest = max(kept, key=lambda revision: (revision.metadata.creation_timestamp or "", revision.revision))
    return msgspec.convert(latest.data["target"], Target).resource_name
