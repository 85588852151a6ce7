"""What all clusters that a person names, and the matrix, need of driver images and of what they are built of."""

from datetime import datetime
from typing import TYPE_CHECKING

from upgrader.cli.base.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from upgrader.core.driver_image.image_garbage import Uses
    from upgrader.images.drivers.builder.catalog import Cells
    from upgrader.reconcile.runtime.context import Context


def needs(session: Session, cells: "Cells", contexts: "Sequence[str]") -> "tuple[Uses, datetime]":
    """What is needed, and the time of the last look; without `contexts` the current cluster is looked at.

    Raises:
        ClusterError: one of the clusters does not say, or shows no node.
    """
    from upgrader.core.driver_image.image_garbage import Uses  # noqa: PLC0415
    from upgrader.core.errors import ClusterError  # noqa: PLC0415
    from upgrader.reconcile.observe.image_uses import read_uses  # noqa: PLC0415

    async def look(context: "Context") -> tuple[Uses, datetime]:
        return await read_uses(context.cluster), context.clock.now()

    wanted, _ = cells.wanted()
    whole = Uses(wanted=frozenset(one.identity.kernel for one in wanted))
    moments: list[datetime] = []
    clusters = [session.of_context(name) for name in contexts] or [session]
    for name, cluster in zip(contexts or ("the cluster",), clusters, strict=True):
        seen, moment = cluster.run(look)
        if not seen.running:
            raise ClusterError(
                f"{name} shows no node's kernel, so nothing is known of what it needs, and nothing is deleted",
                resolution="Leave it out if it really has no nodes.",
            )
        whole, moments = whole.union(seen), [*moments, moment]
    return whole, max(moments)
