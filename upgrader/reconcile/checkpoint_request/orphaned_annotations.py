"""Pods that are asked for a checkpoint by no CheckpointRequest that is there: their marks are taken away.

A request takes its marks away before it ends. One that was removed by force left them: its members would count as
asked for ever. What they were told apart from the mark ends with their park-seconds.
"""

from collections.abc import Iterable, Sequence

import structlog
from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.request_marks import carries, clear_annotations
from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, UpgraderError
from upgrader.core.model.phases import ends
from upgrader.reconcile.observe.own_requests import ownerless
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults

log = structlog.get_logger()


def marked(pods: Iterable[Pod]) -> list[Pod]:
    """Pods with both marks of a request; what a person annotated otherwise is not one."""
    return [
        pod
        for pod in pods
        if untrusted.whole(pod.metadata.annotations.get(names.ANNOTATION_REQUEST)) is not None
        and names.ANNOTATION_PARK_SECONDS in pod.metadata.annotations
    ]


class Refused(Struct, frozen=True, kw_only=True):
    """A pod that stays asked, since its marks may not be taken away."""

    pod: str
    """Namespace and name."""
    error: UpgraderError
    again: bool
    """Whether this look has tried; else the pause since the last try is not over."""


async def take_away(context: Context, asked: Sequence[Pod]) -> list[Refused]:
    """Take the marks from pods whose request is gone, or has ended; a pod that is asked anew meanwhile keeps them.

    Args:
        context: ports.
        asked: pods with marks, as they were read before this call. A request is there before its first mark.

    Raises:
        ClusterError: the requests cannot be listed: nothing is known, so nothing is done.
    """
    if not asked:
        return []
    requests = await context.cluster.list(CHECKPOINT_REQUESTS)
    # One that its plan cannot know as its own is driven by nobody, so it takes its marks away never.
    under_way = [request for request in requests if not ends(request.status.phase) and not ownerless(request)]
    left = [pod for pod in asked if not any(_asks(request, pod) for request in under_way)]
    return [found for pod in left if (found := await _unmark(context, pod)) is not None]


def show(refused: Iterable[Refused], faults: Faults) -> None:
    """Name pods that stay asked among what fails in a step."""
    for one in refused:
        (faults.note if one.again else faults.keep)(f"the marks on pod {one.pod}", one.error)


def _asks(request: CheckpointRequest, pod: Pod) -> bool:
    """Whether a pod is a member that this request asks; of several gangs of a namespace each has its own request."""
    member = pod.metadata.uid in {one.uid for one in request.spec.members}
    return member and request.metadata.namespace == pod.metadata.namespace and carries(request, pod)


async def _unmark(context: Context, pod: Pod) -> Refused | None:
    """What is refused is tried again after a pause: a person has to give the right first."""
    name, now = f"{pod.metadata.namespace}/{pod.metadata.name}", context.clock.now()
    before = context.unmarking.failure(pod.metadata.uid, now)
    if before is not None:
        return Refused(pod=name, error=before, again=False)
    context.leadership.check()
    try:
        await context.cluster.edit(PODS, pod.metadata, clear_annotations(pod))
    except (ConflictError, NotFoundError):
        return None  # it is gone, or its marks are: another request's, or none
    except REFUSED as error:
        if not error.refused:
            raise
        context.unmarking.keep(pod.metadata.uid, error, now)
        return Refused(pod=name, error=error, again=True)
    log.warning("a request that asked a pod is gone", pod=pod.metadata.name, namespace=pod.metadata.namespace)
    return None
