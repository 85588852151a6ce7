"""What we stopped or marked and no GpuStack looks for: the step of each would, and there is none for it (law 9).

Stack, plan and request may all have been deleted, by force too and while nobody led. What is stopped is found by the
record on its owner, who is asked by the marks on the pods, and which nodes are closed by those on the nodes. Owners and
pods are looked for by any stack, nodes by those only that select them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import CONTROLLER_REVISIONS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.fleet import Target
from upgrader.core.model.phases import ends
from upgrader.core.workloads.owner_objects import stopped_owners
from upgrader.reconcile.checkpoint_request import abandoned_owners
from upgrader.reconcile.checkpoint_request.orphaned_annotations import marked, show, take_away
from upgrader.reconcile.gpu_stack.closed_nodes import ClosedNodes
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.telemetry import metrics

log = structlog.get_logger()

KIND, NAME = "Cluster", "without-stacks"
"""The loop that is none of an object's."""
PAUSE_SECONDS = 60.0
"""From a look that found nothing to do until the next."""


@dataclass(kw_only=True)
class Stackless:
    """The step of that loop. What it remembers is a hint: without it one look more is made before a restart."""

    waiting: str = ""
    """What the look before found, as it was logged; empty: it found nothing."""
    nodes: ClosedNodes = field(default_factory=ClosedNodes)

    async def step(self, context: Context, _name: str = NAME) -> float:
        """One look; seconds until the next.

        Raises:
            ClusterError: the API server refused or did not answer; the step is made again.
        """
        faults, listed = Faults(kind=KIND), await context.cluster.list(GPU_STACKS)
        stacks = [stack for stack in listed if stack.metadata.deletion_timestamp is None]
        left = [] if stacks else await self._take_back(context, faults)
        more = await self.nodes.look(context, stacks, faults)
        metrics.show_faults(KIND, NAME, len(faults.found) + len(self.nodes.closed))
        faults.check()
        self._tell(left)
        if left or (more and not faults.found):
            return context.active_seconds
        return context.idle_seconds if faults.found else PAUSE_SECONDS

    async def _take_back(self, context: Context, faults: Faults) -> list[abandoned_owners.Abandoned]:
        """Restart gangs and take marks from pods; gangs that are still stopped then."""
        found = await context.workloads.read(context.cluster)
        left: list[abandoned_owners.Abandoned] = []
        with faults.contained("owners that we stopped"):
            upgrades = await context.cluster.list(NODE_UPGRADES)
            left = await abandoned_owners.restart_owners(
                context,
                stopped_owners(found.works),
                await context.cluster.list(UPGRADE_PLANS),
                resource=await _resource(context, upgrades),
                late=_late(upgrades) if self.waiting else None,
            )
        with faults.contained("pods whose requests are gone"):
            show(await take_away(context, marked(found.pods)), faults)
        return left

    def _tell(self, left: Sequence[abandoned_owners.Abandoned]) -> None:
        """No status is there to show it in, so the log does, once for each news."""
        said = "; ".join(f"{one.stopped.shown} (plan {one.stopped.plan}): {one.why}" for one in left)
        if said and said != self.waiting:
            log.warning("stopped by us, and no GpuStack is left", owners=said)
        self.waiting = said


def _late(upgrades: Sequence[NodeUpgrade]) -> bool:
    """Whether nothing is left that a restart could wait for: no upgrade brings a node back, and each upgrade ends."""
    return all(ends(one.status.phase) for one in upgrades)


async def _resource(context: Context, upgrades: Sequence[NodeUpgrade]) -> str:
    """By which name nodes offer their GPUs: as the latest upgrade has it, else the latest revision that is kept."""
    if upgrades:
        return max(upgrades, key=lambda one: one.metadata.creation_timestamp or "").spec.target.resource_name
    listed = await context.cluster.list(CONTROLLER_REVISIONS, context.stack.namespace, labels=names.LABEL_STACK)
    kept = [one for one in listed if not one.metadata.owner_references]
    if not kept:
        return ""
    latest = max(kept, key=lambda one: (one.metadata.creation_timestamp or "", one.revision))
    return msgspec.convert(latest.data["target"], Target).resource_name
