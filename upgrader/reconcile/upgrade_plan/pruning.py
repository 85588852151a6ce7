"""Removal of node upgrades and requests of ended batches that nothing depends on, while their plan runs.

A plan that retries creates any number of them. Kept are: the latest upgrade of each node, and all upgrades
that changed something; of the requests those that stopped a gang, the latest of each job with an
upgrade, and the latest that it refused. The sums in the plan's status include the losses of removed objects.
"""

from collections.abc import Iterable, Sequence

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES, ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, ThrottledError
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.core.upgrade_plan.plan_state import QUIET, RETRIED_LATER
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.render.custom_objects import batch_of
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading

log = structlog.get_logger()

AT_ONCE = 50
"""Objects that one step removes at most: stopped gangs must not wait for the removal."""


async def prune_objects(context: Context, read: PlanReading) -> None:
    """Remove up to `AT_ONCE` objects; if a removal is refused, the object stays and the step continues."""
    nodes = context.nodes.snapshot()
    if read.open_batch is not None or nodes is None:
        return
    claims = {node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) for node in nodes.values()}
    upgrades = [candidate for candidate in superseded_upgrades(read.upgrades) if candidate.metadata.uid not in claims]
    left = AT_ONCE
    for upgrade in upgrades[:left]:
        await _remove_object(context, NODE_UPGRADES, upgrade.metadata)
    left -= len(upgrades[:left])
    gone = {upgrade.metadata.name for upgrade in upgrades}
    there = {upgrade.spec.group for upgrade in read.upgrades if upgrade.metadata.name not in gone}
    jobs = {gang.owner.uid for gang in read.snapshot.gangs if gang.owner} if read.snapshot is not None else None
    for request in settled_requests(read.requests, there, jobs)[:left]:
        await _remove_object(context, CHECKPOINT_REQUESTS, request.metadata)


def superseded_upgrades(upgrades: Sequence[NodeUpgrade]) -> list[NodeUpgrade]:
    """Node upgrades that were released before they changed anything, of nodes that a later batch contains."""
    latest: dict[str, int] = {}
    for upgrade in upgrades:
        latest[upgrade.spec.node.name] = max(batch_of(upgrade.metadata), latest.get(upgrade.spec.node.name, 0))
    return [
        upgrade
        for upgrade in upgrades
        if _changed_nothing(upgrade) and batch_of(upgrade.metadata) < latest[upgrade.spec.node.name]
    ]


def settled_requests(
    requests: Sequence[CheckpointRequest], groups: Iterable[str], jobs: Iterable[str] | None
) -> list[CheckpointRequest]:
    """Requests that stopped no gang, and that a later request of the same job continues or no upgrade refers to.

    Args:
        requests: all requests of a plan.
        groups: groups that have a node upgrade.
        jobs: uids of the owners of all existing gangs; None if unknown.
    """
    kept: set[str] = set()
    for owner in {request.spec.owner.uid for request in requests}:
        mine = sorted(
            (request for request in requests if request.spec.owner.uid == owner),
            key=lambda request: request.spec.request_id,
        )
        noes = [
            request for request in mine if request_history.is_refused(request) or request_history.is_left_out(request)
        ]
        silent = [request for request in mine if request_history.is_unanswered(request)]
        kept |= {kept_request.metadata.uid for kept_request in (*mine[-1:], *noes[-1:], *silent[-1:])}
    known = set(groups)

    def forgotten(request: CheckpointRequest) -> bool:
        return jobs is not None and request.spec.owner.uid not in jobs and request.spec.group not in known

    return [
        request
        for request in requests
        if is_final(request.status.phase)
        and request.status.stopped_at is None
        and (request.metadata.uid not in kept or forgotten(request))
    ]


def _changed_nothing(upgrade: NodeUpgrade) -> bool:
    return upgrade.status.phase is NodePhase.FAILED and upgrade.status.reason in RETRIED_LATER & QUIET


async def _remove_object(
    context: Context, kind: ResourceKind[NodeUpgrade] | ResourceKind[CheckpointRequest], meta: ObjectMeta
) -> None:
    log.info("deleting an object that is no longer needed", kind=kind.kind, name=meta.name)
    try:
        if names.FINALIZER in meta.finalizers:
            await finalizers.remove_finalizer(context, kind, meta)
        context.leadership.check()
        await context.cluster.delete(kind, meta)
    except (ConflictError, NotFoundError) as error:
        log.info("conflict, requeued", name=meta.name, because=error.brief)
    except ThrottledError:
        raise
    except REFUSED as error:
        log.warning("object not deleted", name=meta.name, because=error.brief, details=error.details)
