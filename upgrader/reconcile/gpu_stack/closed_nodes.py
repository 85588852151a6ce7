"""Claimed and reserved nodes that no GpuStack selects: unchanged nodes are released, the others stay closed.

In a pool, the stack reinstalls a node without a driver. Without a stack, such a node would accept pods and have
no GPU for them.
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
from upgrader.reconcile.node_upgrade.orphaned_claims import release_claim, still_orphaned
from upgrader.reconcile.observe.cluster_snapshot import image_facts, in_pool
from upgrader.reconcile.observe.stack_reading import orphaned_claims
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_plan import reservations

log = structlog.get_logger()

SHOWN = 10
"""Number of nodes that the log names; the others are counted."""


NodeClaim = tuple[str, str, str]
"""Name and uid of a node, and the upgrade or plan that its claim or reservation names."""


@dataclass(kw_only=True)
class ClosedNodes:
    """Release of nodes without a stack; its memory is a hint: without it, a removal takes one more pass."""

    closed: Mapping[NodeClaim, str] = field(default_factory=dict)
    """Claims and reservations that stay, and why, as logged."""
    _seen: Collection[NodeClaim] = frozenset()
    """Claims and reservations that the previous pass found."""

    async def release_nodes(self, context: Context, stacks: Sequence[GpuStack], faults: Faults) -> bool:
        """Remove claims that the previous pass found too; whether another pass may remove more soon.

        Args:
            context: ports.
            stacks: all stacks; each handles the nodes of its own pool.
            faults: collects errors.
        """
        known, claims = context.nodes.snapshot(), set[NodeClaim]()
        if known is not None:
            nodes = {
                name: node for name, node in known.items() if not any(in_pool(node, stack.spec) for stack in stacks)
            }
            with faults.contained("nodes that are reserved for deleted plans"):
                claims |= await self._release_reservations(context, nodes, faults)
            with faults.contained("nodes of deleted upgrades"):
                claims |= await self._release_claims(context, nodes.values(), faults)
        self._seen = claims
        return known is None or bool(claims - self.closed.keys())

    async def _release_reservations(
        self, context: Context, nodes: Mapping[str, Node], faults: Faults
    ) -> set[NodeClaim]:
        """Remove reservations of deleted plans; returns those that are left."""
        stale = await reservations.stale_reservations(context, nodes.values())
        claims = {(name, nodes[name].metadata.uid, plan) for name, plan in stale.items()}
        for claim in sorted(claims.intersection(self._seen)):
            with faults.contained(f"node {claim[0]}"):
                await reservations.release_reservation(context, claim[0], stale[claim[0]])
                claims.discard(claim)
        return claims

    async def _release_claims(self, context: Context, nodes: Iterable[Node], faults: Faults) -> set[NodeClaim]:
        """Remove claims of deleted upgrades with their taints; returns those that are left."""
        claimed = [node_facts(node, "") for node in nodes if names.ANNOTATION_CLAIMED_BY in node.metadata.annotations]
        upgrades = await context.cluster.list(NODE_UPGRADES) if claimed else []  # after the nodes
        gone = orphaned_claims({node.claimed_by for node in claimed}, upgrades)
        orphaned = {
            (node.name, node.uid, node.claimed_by): node
            for node in claimed
            if node.claimed_by and node.claimed_by in gone
        }
        due, closed = sorted(orphaned.keys() & self._seen), dict[NodeClaim, str]()
        catalogue = await _read_catalogue(context) if due else Catalogue(())
        for claim in due:
            with faults.contained(f"node {claim[0]}"):
                node = orphaned[claim]
                why = unplanned_upgrades.why_closed(node, catalogue) or await _open_node(
                    context, node, upgrades, catalogue
                )
                if why:
                    closed[claim] = why
                else:
                    del orphaned[claim]
        self._log_closed(closed)
        return set(orphaned)

    def _log_closed(self, closed: Mapping[NodeClaim, str]) -> None:
        """Log nodes that stay closed, once for each change, since there is no status to show them in."""
        if closed and closed != self.closed:
            shown = [f"{name}: {why} (UID of the NodeUpgrade: {upgrade})" for (name, _, upgrade), why in closed.items()]
            more = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
            log.warning(
                "nodes stay tainted by deleted NodeUpgrades, and no GpuStack selects them",
                nodes="; ".join([*shown[:SHOWN], *more]),
                resolution="Apply a GpuStack that selects them, which installs the driver on them again. Or repair "
                "them manually, then run `upgrader uninstall`, which removes all labels, annotations and taints of the "
                "operator.",
            )
        self.closed = closed


async def _open_node(context: Context, node: NodeFacts, upgrades: Iterable[NodeUpgrade], catalogue: Catalogue) -> str:
    """Release a node after a fresh read; returns why it stays closed, else empty."""
    fresh = await still_orphaned(context, upgrades, node)
    if fresh is None:
        return ""
    why = unplanned_upgrades.why_closed(node_facts(fresh, ""), catalogue)
    if not why:
        await release_claim(context, fresh)
    return why


async def _read_catalogue(context: Context) -> Catalogue:
    listed = (image_facts(image) for image in await context.cluster.list(DRIVER_IMAGES))
    return Catalogue([image for image in listed if image is not None])
