"""Needs of the specified clusters and of the matrix for driver images and their packages."""

from datetime import datetime
from typing import TYPE_CHECKING

from upgrader.cli.base.session import Session
from upgrader.core.driver_image.image_garbage import Uses
from upgrader.core.errors import ClusterError
from upgrader.reconcile.observe.image_uses import read_uses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from upgrader.images.drivers.builder.catalog import Cells
    from upgrader.reconcile.runtime.context import Context


def read_needs(session: Session, cells: "Cells", contexts: "Sequence[str]") -> "tuple[Uses, datetime]":
    """The needs, and the time of the last read; `contexts` defaults to the current cluster.

    Raises:
        ClusterError: a cluster cannot be read, or has no node.
    """

    async def read_needs(context: "Context") -> tuple[Uses, datetime]:
        return await read_uses(context.cluster), context.clock.now()

    wanted, _ = cells.list_cells()
    whole = Uses(wanted=frozenset(cell.identity.kernel for cell in wanted))
    moments: list[datetime] = []
    clusters = [session.for_context(name) for name in contexts] or [session]
    for name, cluster in zip(contexts or ("the cluster",), clusters, strict=True):
        seen, moment = cluster.run(read_needs)
        if not seen.running:
            raise ClusterError(
                f"{name} has no node, so its needs are unknown; nothing was deleted",
                resolution="Omit the cluster if it has no nodes.",
            )
        whole, moments = whole.union(seen), [*moments, moment]
    return whole, max(moments)
