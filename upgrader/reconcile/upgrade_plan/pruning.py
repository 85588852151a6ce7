"""Node upgrades and requests of ended batches that nothing depends on any more, removed while their plan goes on.

A plan that tries again and again makes new ones without end. What is kept: the latest upgrade of each node, and all
that came as far as to change anything; of the requests those that stopped a gang, the latest of each job with an
upgrade, and the latest in which it said no. Their losses are in the sums of the plan's status by then.
"""

from collections.abc import Iterable, Sequence

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES, ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, ThrottledError
from upgrader.core.model.phases import NodePhase, ends
from upgrader.core.upgrade_plan.plan_state import LET_GO, QUIET
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.render.custom_objects import batch_of
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading

log = structlog.get_logger()

AT_ONCE = 50
"""Objects that one step removes: gangs that were stopped wait for no sweep."""


async def prune(context: Context, read: PlanReading) -> None:
    """Remove some of them; where that is refused they stay, and nothing else is kept waiting."""
    nodes = context.nodes.snapshot()
    if read.open_batch is not None or nodes is None:
        return
    claims = {node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) for node in nodes.values()}
    upgrades = [one for one in superseded(read.upgrades) if one.metadata.uid not in claims]
    left = AT_ONCE
    for one in upgrades[:left]:
        await _remove(context, NODE_UPGRADES, one.metadata)
    left -= len(upgrades[:left])
    gone = {one.metadata.name for one in upgrades}
    there = {one.spec.group for one in read.upgrades if one.metadata.name not in gone}
    jobs = {gang.owner.uid for gang in read.snapshot.gangs if gang.owner} if read.snapshot is not None else None
    for request in settled_requests(read.requests, there, jobs)[:left]:
        await _remove(context, CHECKPOINT_REQUESTS, request.metadata)


def superseded(upgrades: Sequence[NodeUpgrade]) -> list[NodeUpgrade]:
    """Node upgrades that were let go before they changed anything, of nodes that a later batch took again."""
    latest: dict[str, int] = {}
    for one in upgrades:
        latest[one.spec.node.name] = max(batch_of(one.metadata), latest.get(one.spec.node.name, 0))
    return [one for one in upgrades if _changed_nothing(one) and batch_of(one.metadata) < latest[one.spec.node.name]]


def settled_requests(
    requests: Sequence[CheckpointRequest], groups: Iterable[str], jobs: Iterable[str] | None
) -> list[CheckpointRequest]:
    """Requests that stopped nobody, and that a later one of the same job carries on or no upgrade remembers.

    Args:
        requests: all of a plan.
        groups: those of which there is a node upgrade.
        jobs: uids of the owners of all gangs that are there; None where they are not known.
    """
    kept: set[str] = set()
    for owner in {one.spec.owner.uid for one in requests}:
        mine = sorted((one for one in requests if one.spec.owner.uid == owner), key=lambda one: one.spec.request_id)
        noes = [one for one in mine if request_history.refused(one) or request_history.left_out(one)]
        silent = [one for one in mine if request_history.unanswered(one)]
        kept |= {one.metadata.uid for one in (*mine[-1:], *noes[-1:], *silent[-1:])}
    known = set(groups)

    def forgotten(one: CheckpointRequest) -> bool:
        return jobs is not None and one.spec.owner.uid not in jobs and one.spec.group not in known

    return [
        one
        for one in requests
        if ends(one.status.phase) and one.status.stopped_at is None and (one.metadata.uid not in kept or forgotten(one))
    ]


def _changed_nothing(upgrade: NodeUpgrade) -> bool:
    return upgrade.status.phase is NodePhase.FAILED and upgrade.status.reason in LET_GO & QUIET


async def _remove(
    context: Context, kind: ResourceKind[NodeUpgrade] | ResourceKind[CheckpointRequest], meta: ObjectMeta
) -> None:
    log.info("not needed any more", kind=kind.kind, name=meta.name)
    try:
        if names.FINALIZER in meta.finalizers:
            await finalizers.take(context, kind, meta)
        context.leadership.check()
        await context.cluster.delete(kind, meta)
    except (ConflictError, NotFoundError) as error:
        log.info("conflict, requeued", name=meta.name, because=error.brief)
    except ThrottledError:
        raise
    except REFUSED as error:
        log.warning("not removed", name=meta.name, because=error.brief, details=error.details)
