"""Ended plans and older revisions of a stack go when there are more than its historyLimit.

Never what something still depends on: a plan that has anything stopped or marked, a revision that a node runs or a plan
names, the one before the present one (for `upgrader rollback`), and a plan that says why a revision is blocked.
"""

import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, CONTROLLER_REVISIONS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.gpu_stack.history import Past, beyond
from upgrader.core.model.phases import NodePhase, ends
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.observe.revisions import revision_name, revisions
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan import rollbacks

log = structlog.get_logger()


async def prune(context: Context, read: StackReading) -> None:
    """Delete what is beyond the limit; while a plan is under way nothing is.

    Raises:
        ConflictError: a plan changed since it was read; the next step looks again.
    """
    if read.running is not None:
        return
    limit = read.stack.spec.history_limit
    ended = sorted((one for one in read.plans if ends(one.status.phase)), key=_age)
    past = [Past(name=one.metadata.name, needed=_needed(read, one)) for one in ended]
    gone = set()
    for name in beyond(past, limit):
        plan = next(one for one in ended if one.metadata.name == name)
        if plan.metadata.deletion_timestamp is None and not await _in_use(context, read, plan):
            log.info("an ended plan is beyond the history limit", plan=name, limit=limit)
            context.leadership.check()
            await context.cluster.delete(UPGRADE_PLANS, plan.metadata)
        gone.add(name)
    await _prune_revisions(context, read, [one for one in read.plans if one.metadata.name not in gone])


def _age(plan: UpgradePlan) -> tuple[str, str]:
    return plan.status.ended_at or plan.metadata.creation_timestamp, plan.metadata.name


def _needed(read: StackReading, plan: UpgradePlan) -> bool:
    name, status = plan.metadata.name, plan.status
    upgrades = [one for one in read.upgrades if one.spec.plan == name]
    marked = any(not ends(one.status.phase) or one.metadata.uid in read.claims for one in upgrades)
    upgraded = any(one.status.phase is NodePhase.SUCCEEDED for one in upgrades)
    undoing = rollbacks.wanted(plan) and upgraded and status.rollback_plan is None
    blocks = plan.spec.target_revision != read.target.revision == status.stack_revision
    return names.FINALIZER in plan.metadata.finalizers or bool(status.reserved_nodes) or marked or undoing or blocks


async def _in_use(context: Context, read: StackReading, plan: UpgradePlan) -> bool:
    """Whether a gang of an ended plan was not let go yet."""
    listed = await context.cluster.list(CHECKPOINT_REQUESTS, labels=f"{names.LABEL_PLAN}={plan.metadata.name}")
    found, _ = own_requests.sort_out(listed, plan, read.upgrades)
    return any(not ends(one.status.phase) or names.FINALIZER in one.metadata.finalizers for one in found)


async def _prune_revisions(context: Context, read: StackReading, plans: list[UpgradePlan]) -> None:
    stack, status = read.stack.metadata.name, read.stack.status
    kept = await revisions(context, stack)
    if len(kept) <= read.stack.spec.history_limit:
        return
    open_upgrades = [one for one in read.upgrades if not ends(one.status.phase) or one.metadata.uid in read.claims]
    needed = {node.revision for node in read.snapshot.nodes}
    needed |= {node.removed_driver.revision for node in read.snapshot.nodes if node.removed_driver is not None}
    needed |= {read.target.revision, status.current_revision or "", status.blocked_revision or ""}
    needed |= {one.spec.target_revision for one in plans}
    needed |= {state.revision for one in open_upgrades for state in (one.spec.source, one.spec.target)}
    found = [one.metadata.name for one in kept]
    present = revision_name(stack, read.target.revision)
    before = found[max(0, found.index(present) - 1)] if present in found else ""
    objects = {revision_name(stack, one) for one in needed if one} | {before}
    past = [Past(name=one, needed=one in objects) for one in found]
    for name in beyond(past, read.stack.spec.history_limit):
        one = next(one for one in kept if one.metadata.name == name)
        log.info("a revision that nothing needs is beyond the history limit", revision=name)
        context.leadership.check()
        await context.cluster.delete(CONTROLLER_REVISIONS, one.metadata)
