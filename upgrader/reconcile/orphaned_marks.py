"""Pods that are asked for a checkpoint by no CheckpointRequest that is there: their marks are taken away.

A request takes its marks away before it ends. One that was removed by force left them: its members would count as
asked for ever. What they were told apart from the mark ends with their park-seconds.
"""

from collections.abc import Iterable, Sequence

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.request_marks import carries, clear_annotations
from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError
from upgrader.core.phases import ends
from upgrader.reconcile.context import Context

log = structlog.get_logger()


def marked(pods: Iterable[Pod]) -> list[Pod]:
    """Pods with both marks of a request; what a person annotated otherwise is not one."""
    return [
        pod
        for pod in pods
        if untrusted.whole(pod.metadata.annotations.get(names.ANNOTATION_REQUEST)) is not None
        and names.ANNOTATION_PARK_SECONDS in pod.metadata.annotations
    ]


async def take_away(context: Context, asked: Sequence[Pod]) -> None:
    """Take the marks from pods whose request is gone, or has ended; a pod that is asked anew meanwhile keeps them.

    Args:
        context: ports.
        asked: pods with marks, as they were read before this call. A request is there before its first mark.

    Raises:
        ClusterError: the requests cannot be listed: nothing is known, so nothing is done.
    """
    if not asked:
        return
    requests = await context.cluster.list(CHECKPOINT_REQUESTS)
    under_way = [request for request in requests if not ends(request.status.phase)]
    for pod in asked:
        if not any(_asks(request, pod) for request in under_way):
            await _unmark(context, pod)


def _asks(request: CheckpointRequest, pod: Pod) -> bool:
    return request.metadata.namespace == pod.metadata.namespace and carries(request, pod)


async def _unmark(context: Context, pod: Pod) -> None:
    context.leadership.check()
    try:
        await context.cluster.edit(PODS, pod.metadata, clear_annotations(pod))
    except (ConflictError, NotFoundError):
        return  # it is gone, or its marks are: another request's, or none
    except REFUSED as error:
        if not error.refused:
            raise
        log.warning("a pod stays asked", pod=pod.metadata.name, namespace=pod.metadata.namespace, because=error.brief)
        return
    log.warning("a request that asked a pod is gone", pod=pod.metadata.name, namespace=pod.metadata.namespace)
