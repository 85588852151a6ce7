"""Nodes with our marks that no GpuStack selects: those that run what they had are opened, the others stay closed.

In a pool a node whose driver is away is installed anew. Here nobody is there who would: it would take pods and
have no GPU for them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, NODE_UPGRADES
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack import unplanned_upgrades
from upgrader.core.model.fleet import NodeFacts
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.node_upgrade.orphaned_claims import still_orphaned, unmark
from upgrader.reconcile.observe.cluster_snapshot import image_facts, in_pool
from upgrader.reconcile.observe.stack_reading import orphaned
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_plan import reservations

log = structlog.get_logger()

SHOWN = 10
"""Nodes that the log names; the others are counted."""


Mark = tuple[str, str, str]
"""Name and uid of a node, and the upgrade or plan that its mark names."""


@dataclass(kw_only=True)
class ClosedNodes:
    """What it remembers is a hint: without it one look more is made before anything is taken away."""

    closed: Mapping[Mark, str] = field(default_factory=dict)
    """What stays, and why, as it was logged."""
    _seen: Collection[Mark] = frozenset()
    """What the look before found."""

    async def look(self, context: Context, stacks: Sequence[GpuStack], faults: Faults) -> bool:
        """Take away what the look before has found too; whether another look may take away more soon.

        Args:
            context: as everywhere.
            stacks: those that look after the nodes of their pools themselves.
            faults: where errors go.
        """
        known, found = context.nodes.snapshot(), set[Mark]()
        if known is not None:
            nodes = {name: node for name, node in known.items() if not any(in_pool(node, one.spec) for one in stacks)}
            with faults.contained("nodes that are kept free for plans that are gone"):
                found |= await self._unreserve(context, nodes, faults)
            with faults.contained("nodes of upgrades that are gone"):
                found |= await self._open(context, nodes.values(), faults)
        self._seen = found
        return known is None or bool(found - self.closed.keys())

    async def _unreserve(self, context: Context, nodes: Mapping[str, Node], faults: Faults) -> set[Mark]:
        """What is found and still there."""
        stale = await reservations.stale(context, nodes.values())
        found = {(name, nodes[name].metadata.uid, plan) for name, plan in stale.items()}
        for mark in sorted(found.intersection(self._seen)):
            with faults.contained(f"node {mark[0]}"):
                await reservations.unmark(context, mark[0], stale[mark[0]])
                found.discard(mark)
        return found

    async def _open(self, context: Context, nodes: Iterable[Node], faults: Faults) -> set[Mark]:
        """The same of claims; the taints go with them."""
        claimed = [node_facts(one, "") for one in nodes if names.ANNOTATION_CLAIMED_BY in one.metadata.annotations]
        upgrades = await context.cluster.list(NODE_UPGRADES) if claimed else []  # after the nodes
        gone = orphaned({one.claimed_by for one in claimed}, upgrades)
        found = {
            (one.name, one.uid, one.claimed_by): one for one in claimed if one.claimed_by and one.claimed_by in gone
        }
        due, closed = sorted(found.keys() & self._seen), dict[Mark, str]()
        catalogue = await _catalogue(context) if due else Catalogue(())
        for mark in due:
            with faults.contained(f"node {mark[0]}"):
                node = found[mark]
                why = unplanned_upgrades.why_closed(node, catalogue) or await _opened(
                    context, node, upgrades, catalogue
                )
                if why:
                    closed[mark] = why
                else:
                    del found[mark]
        self._tell(closed)
        return set(found)

    def _tell(self, closed: Mapping[Mark, str]) -> None:
        """No status is there to show it in, so the log does, once for each news."""
        if closed and closed != self.closed:
            shown = [f"{name}: {why} (NodeUpgrade {upgrade})" for (name, _, upgrade), why in closed.items()]
            more = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
            log.warning(
                "closed by upgrades that are gone, and no GpuStack selects them",
                nodes="; ".join([*shown[:SHOWN], *more]),
                resolution="Apply a GpuStack that selects them: they are installed anew. Or repair them by hand, then "
                "run `upgrader uninstall`, which takes our marks from all nodes.",
            )
        self.closed = closed


async def _opened(context: Context, node: NodeFacts, upgrades: Iterable[NodeUpgrade], catalogue: Catalogue) -> str:
    """Open a node, from what is there now; why it stays closed, else empty."""
    fresh = await still_orphaned(context, upgrades, node)
    if fresh is None:
        return ""
    why = unplanned_upgrades.why_closed(node_facts(fresh, ""), catalogue)
    if not why:
        await unmark(context, fresh)
    return why


async def _catalogue(context: Context) -> Catalogue:
    listed = (image_facts(one) for one in await context.cluster.list(DRIVER_IMAGES))
    return Catalogue([one for one in listed if one is not None])
