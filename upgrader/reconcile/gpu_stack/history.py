"""Deletion of ended plans and older revisions of a stack beyond its historyLimit.

Kept are: a plan with stopped gangs or claimed nodes, a revision that a node runs or a plan names, the revision before
the present one (for `upgrader rollback`), and a plan that blocks a revision.
"""

import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, CONTROLLER_REVISIONS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.gpu_stack.history import HistoryEntry, names_beyond_limit
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.observe.revisions import list_revisions, revision_name
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan import rollbacks

log = structlog.get_logger()


async def prune_history(context: Context, read: StackReading) -> None:
    """Delete objects beyond the limit; nothing is deleted while a plan is in progress.

    Raises:
        ConflictError: a plan changed since it was read; the next step reads it again.
    """
    if read.running is not None:
        return
    limit = read.stack.spec.history_limit
    ended = sorted((plan for plan in read.plans if is_final(plan.status.phase)), key=_age_key)
    past = [HistoryEntry(name=plan.metadata.name, needed=_is_needed(read, plan)) for plan in ended]
    gone = set()
    for name in names_beyond_limit(past, limit):
        plan = next(candidate for candidate in ended if candidate.metadata.name == name)
        if plan.metadata.deletion_timestamp is None and not await _in_use(context, read, plan):
            log.info("deleting an ended plan beyond the history limit", plan=name, limit=limit)
            context.leadership.check()
            await context.cluster.delete(UPGRADE_PLANS, plan.metadata)
        gone.add(name)
    await _prune_revisions(context, read, [plan for plan in read.plans if plan.metadata.name not in gone])


def _age_key(plan: UpgradePlan) -> tuple[str, str]:
    return plan.status.ended_at or plan.metadata.creation_timestamp, plan.metadata.name


def _is_needed(read: StackReading, plan: UpgradePlan) -> bool:
    name, status = plan.metadata.name, plan.status
    upgrades = [upgrade for upgrade in read.upgrades if upgrade.spec.plan == name]
    claimed = any(not is_final(upgrade.status.phase) or upgrade.metadata.uid in read.claims for upgrade in upgrades)
    upgraded = any(upgrade.status.phase is NodePhase.SUCCEEDED for upgrade in upgrades)
    undoing = rollbacks.needs_rollback(plan) and upgraded and status.rollback_plan is None
    blocks = plan.spec.target_revision != read.target.revision == status.stack_revision
    return names.FINALIZER in plan.metadata.finalizers or bool(status.reserved_nodes) or claimed or undoing or blocks


async def _in_use(context: Context, read: StackReading, plan: UpgradePlan) -> bool:
    """Whether a request of an ended plan is open or still has its finalizer."""
    listed = await context.cluster.list(CHECKPOINT_REQUESTS, labels=f"{names.LABEL_PLAN}={plan.metadata.name}")
    requests, _ = own_requests.sort_out(listed, plan, read.upgrades)
    return any(
        not is_final(request.status.phase) or names.FINALIZER in request.metadata.finalizers for request in requests
    )


async def _prune_revisions(context: Context, read: StackReading, plans: list[UpgradePlan]) -> None:
    stack, status = read.stack.metadata.name, read.stack.status
    kept = await list_revisions(context, stack)
    if len(kept) <= read.stack.spec.history_limit:
        return
    open_upgrades = [
        upgrade
        for upgrade in read.upgrades
        if not is_final(upgrade.status.phase) or upgrade.metadata.uid in read.claims
    ]
    needed = {node.revision for node in read.snapshot.nodes}
    needed |= {node.removed_driver.revision for node in read.snapshot.nodes if node.removed_driver is not None}
    needed |= {read.target.revision, status.current_revision or "", status.blocked_revision or ""}
    needed |= {plan.spec.target_revision for plan in plans}
    needed |= {state.revision for upgrade in open_upgrades for state in (upgrade.spec.source, upgrade.spec.target)}
    revision_names = [revision.metadata.name for revision in kept]
    present = revision_name(stack, read.target.revision)
    before = revision_names[max(0, revision_names.index(present) - 1)] if present in revision_names else ""
    objects = {revision_name(stack, revision) for revision in needed if revision} | {before}
    past = [HistoryEntry(name=revision, needed=revision in objects) for revision in revision_names]
    for name in names_beyond_limit(past, read.stack.spec.history_limit):
        oldest = next(revision for revision in kept if revision.metadata.name == name)
        log.info("deleting an unused revision beyond the history limit", revision=name)
        context.leadership.check()
        await context.cluster.delete(CONTROLLER_REVISIONS, oldest.metadata)
