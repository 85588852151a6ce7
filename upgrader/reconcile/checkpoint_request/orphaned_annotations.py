"""Request annotations on pods without a CheckpointRequest: they are removed.

A request removes its annotations before it ends. A request that was removed by force leaves them, and its members
would count as requested forever. Anything sent to members besides the annotation ends with their park-seconds.
"""

from collections.abc import Iterable, Sequence

import structlog
from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.request_annotations import carries_request, clear_annotations
from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, UpgraderError
from upgrader.core.model.phases import is_final
from upgrader.reconcile.observe.own_requests import is_ownerless
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults

log = structlog.get_logger()


def annotated_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Pods with both annotations of a request; other annotations by a user do not count."""
    return [
        pod
        for pod in pods
        if untrusted.parse_whole(pod.metadata.annotations.get(names.ANNOTATION_REQUEST)) is not None
        and names.ANNOTATION_PARK_SECONDS in pod.metadata.annotations
    ]


class RefusedRemoval(Struct, frozen=True, kw_only=True):
    """A pod whose request annotations cannot be removed."""

    pod: str
    """Namespace and name."""
    error: UpgraderError
    again: bool
    """Whether this pass has tried; else the pause since the last attempt is not over."""


async def remove_annotations(context: Context, asked: Sequence[Pod]) -> list[RefusedRemoval]:
    """Remove annotations of deleted or ended requests from pods; a pod with a new request keeps them.

    Args:
        context: ports.
        asked: pods with annotations, read before this call. A request exists before its first annotation.

    Raises:
        ClusterError: the requests cannot be listed, so nothing is done.
    """
    if not asked:
        return []
    requests = await context.cluster.list(CHECKPOINT_REQUESTS)
    # A request without an owner is not reconciled, so it never removes its annotations.
    under_way = [request for request in requests if not is_final(request.status.phase) and not is_ownerless(request)]
    left = [pod for pod in asked if not any(_covers_pod(request, pod) for request in under_way)]
    return [refusal for pod in left if (refusal := await _remove_from_pod(context, pod)) is not None]


def note_refused_pods(refused: Iterable[RefusedRemoval], faults: Faults) -> None:
    """Add pods that keep their annotations to the faults of a step."""
    for refusal in refused:
        (faults.record_error if refusal.again else faults.keep_error)(
            f"the annotations of pod {refusal.pod}", refusal.error
        )


def _covers_pod(request: CheckpointRequest, pod: Pod) -> bool:
    """Whether a pod is a member of this request; each gang of a namespace has its own request."""
    member = pod.metadata.uid in {known.uid for known in request.spec.members}
    return member and request.metadata.namespace == pod.metadata.namespace and carries_request(request, pod)


async def _remove_from_pod(context: Context, pod: Pod) -> RefusedRemoval | None:
    """Remove the annotations of one pod; a refusal is retried after a pause, since a user must grant the right."""
    name, now = f"{pod.metadata.namespace}/{pod.metadata.name}", context.clock.now()
    before = context.annotation_removals.failure(pod.metadata.uid, now)
    if before is not None:
        return RefusedRemoval(pod=name, error=before, again=False)
    context.leadership.check()
    try:
        await context.cluster.edit(PODS, pod.metadata, clear_annotations(pod))
    except (ConflictError, NotFoundError):
        return None  # the pod is deleted, or has annotations of another request, or none
    except REFUSED as error:
        if not error.refused:
            raise
        context.annotation_removals.keep(pod.metadata.uid, error, now)
        return RefusedRemoval(pod=name, error=error, again=True)
    log.warning(
        "annotations removed from a pod without an open CheckpointRequest",
        pod=pod.metadata.name,
        namespace=pod.metadata.namespace,
    )
    return None
