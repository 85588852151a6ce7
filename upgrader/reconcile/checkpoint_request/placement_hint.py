"""Placement of a restarted gang in its request, for owners whose template cannot be changed.

deploy/admission-steering.yaml, if installed, reads it and mutates the pods at their creation.
"""

import msgspec

from upgrader.api.explicit import explicit_json
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.errors import ConflictError
from upgrader.core.workloads.placement import Placement
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner, pod_selector
from upgrader.reconcile.runtime.context import Context


async def write_placement(context: Context, request: CheckpointRequest, owner: LiveOwner, where: Placement) -> None:
    """Write the placement into the request before the gang is restarted; it is valid until the plan ends.

    The placement of an earlier restart is removed first: pods that follow both might fit nowhere. Only the first write
    is waited for: the placement can change with every step, and must not delay the restart.

    Raises:
        ConflictError: written just now. API servers observe it a moment later, so the next step restarts the gang.
    """
    meta = request.metadata
    selector = await pod_selector(context, owner, meta.namespace)
    chosen = msgspec.structs.replace(
        where,
        left_behind=tuple(sorted(where.left_behind)),
        pod_labels=dict(label.split("=", 1) for label in selector.split(",") if label),
    )
    if request.spec.placement == chosen:
        return
    context.leadership.check()
    for other in await context.cluster.list(CHECKPOINT_REQUESTS, meta.namespace):
        of_gang = other.spec.owner.uid == request.spec.owner.uid and other.metadata.name != meta.name
        if of_gang and other.spec.placement is not None:
            await context.cluster.merge(CHECKPOINT_REQUESTS, other.metadata, {"spec": {"placement": None}})
    await context.cluster.merge(CHECKPOINT_REQUESTS, meta, {"spec": {"placement": explicit_json(chosen)}})
    if request.spec.placement is None:
        raise ConflictError(f"the placement of {request.spec.gang} was written; the next step restarts the gang")
