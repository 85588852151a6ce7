"""The inputs of one step of a CheckpointRequest: owner, pods, answers, progress."""

from collections.abc import Sequence

import msgspec

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import timing
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.checkpoint_request.owner_state import owner_facts
from upgrader.core.checkpoint_request.request_state import OwnerFacts, RequestView
from upgrader.core.errors import ClusterError
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.phases import RequestPhase, is_final
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.checkpoint_annotations import find_leader
from upgrader.core.workloads.suspend_patches import is_off
from upgrader.reconcile.checkpoint_request import delivery_failures, live_owners
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner, read_owner, read_pods
from upgrader.reconcile.checkpoint_request.member_answers import read_answers
from upgrader.reconcile.facts.pod_facts import members_of
from upgrader.reconcile.runtime.context import Context

_R = RequestPhase
_STOPPED = frozenset({_R.STOPPING, _R.STOPPED, _R.RESTARTING})
"""Phases in which the operator may have stopped a gang."""


class LiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A CheckpointRequest, its owner and pods, as read for this step."""

    request: CheckpointRequest
    owner: LiveOwner
    pods: tuple[Pod, ...]
    view: RequestView
    unread: str = ""  # why its answers or its progress could not be read; both are empty then

    @property
    def is_bound(self) -> bool:
        """Whether every wanted member of the restarted gang has a node."""
        alive = [pod for pod in self.pods if pod.status.phase not in {"Succeeded", "Failed"}]
        placed = [pod for pod in alive if pod.spec.node_name and pod.metadata.deletion_timestamp is None]
        return not self.view.owner.suspended and len(placed) >= self.view.owner.wanted


async def read_request(context: Context, request: CheckpointRequest, resource: str) -> LiveRequest:
    """Read the gang; answers and progress are read only in the phases that need them.

    Raises:
        ClusterError: the owner of a gang that may be stopped cannot be read, so nothing is done.
    """
    owner = await read_owner(context, request.spec.owner, request.metadata.namespace)
    if owner.unread and request.status.phase in _STOPPED:
        raise ClusterError(owner.unread, details=f"{request.spec.owner.kind} {request.spec.owner.name}")
    pods: Sequence[Pod] = ()
    if not is_final(request.status.phase):
        pods = await read_pods(context, owner, request)
    members = members_of(request, pods, PoolGpus(resource=resource))
    about_to_stop = request.status.phase is _R.STOPPING and owner.body is not None and not _is_off(owner)
    answers, progress, unread = await read_answers(context, request, pods, about_to_stop=about_to_stop)
    forbidden = ""
    if about_to_stop:
        forbidden = await live_owners.explain_forbidden(context, request.spec.gang, owner, pods, members)
    if owner.unread:  # counts as no answer: the gang is released at the latest when the request ends
        answers = ()
    view = _request_view(request, owner, members, answers, progress, forbidden)
    return LiveRequest(request=request, owner=owner, pods=tuple(pods), view=view, unread=owner.unread or unread)


def _is_off(owner: LiveOwner) -> bool:
    return owner.body is not None and is_off(owner.row, owner.body)


def _request_view(
    request: CheckpointRequest,
    owner: LiveOwner,
    present: tuple[MemberFacts, ...],
    answers: tuple[Ack, ...],
    progress: dict[str, int],
    forbidden: str,
) -> RequestView:
    spec, status = request.spec, request.status
    asked = timing.parse_time(spec.asked_at)
    living = [member for member in present if not member.terminating and member.phase == "Running"]
    return RequestView(
        name=request.metadata.name,
        gang=spec.gang,
        phase=status.phase,
        deadline=timing.parse_time(status.deadline) if status.deadline else None,
        request_id=spec.request_id,
        asked_at=asked,
        stop_before=timing.add_seconds(asked, spec.park_seconds),
        restart_by=timing.parse_time(status.restart_by) if status.restart_by else None,
        members=tuple(member.uid for member in spec.members),
        present=present,
        answers=answers,
        owner=OwnerFacts() if owner.unread else owner_facts(owner.row, owner.body, spec.owner.uid, len(spec.members)),
        acknowledged_step=status.acknowledged_step,
        progress=_member_progress(living, progress, led=spec.leader is not None),
        forbidden=forbidden,
        method=spec.method,
        leader=spec.leader or "",
        max_loss_seconds=spec.max_loss_seconds,
        timeout_seconds=spec.timeout_seconds,
        on_deadline=spec.on_deadline,
        fallbacks=tuple(spec.fallbacks),
        misses=delivery_failures.misses_of(request),
        lane=spec.lane,
        admitted_at=timing.parse_time(status.admitted_at) if status.admitted_at else None,
    )


def _member_progress(living: Sequence[MemberFacts], steps: dict[str, int], *, led: bool) -> tuple[int | None, ...]:
    first = find_leader(living) if led else None
    return tuple(steps.get(member.uid if first is None else first.uid) for member in living)
