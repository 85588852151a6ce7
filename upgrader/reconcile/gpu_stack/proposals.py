"""Plans that a stack creates and approves by itself, by `spec.onDrift`; decided in core.gpu_stack.proposals."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import structlog

from upgrader.api import names
from upgrader.api.explicit import explicit_json
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import Approval, ApprovalLimits, DriftPlanSpec, UpgradePlan
from upgrader.core import timing
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.errors import ConflictError
from upgrader.core.gpu_stack import proposals, unplanned_upgrades
from upgrader.core.gpu_stack.proposals import OnDrift, PlanSeen, Proposal, ProposalView
from upgrader.core.naming import object_name
from upgrader.reconcile.gpu_stack.debounce_cache import Steady
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan import plan_view

log = structlog.get_logger()


async def answer_drift(context: Context, read: StackReading, steady: Steady) -> Proposal | None:
    """Create or approve the stack's own plan if due; returns the decision, None if drift is only reported."""
    if read.stack.spec.on_drift is OnDrift.REPORT:
        return None
    proposal = proposals.decide(_proposal_view(context, read, steady))
    if proposal is None or not (proposal.create or proposal.approve):
        return proposal
    if proposal.create:
        await _create_plan(context, read, proposal)
    else:
        plan = next(candidate for candidate in read.plans if candidate.metadata.name == proposal.approve)
        context.leadership.check()
        # In one write: the approval covers the stack's present settings, not those of the time of the proposal.
        spec = {**_plan_settings(read), "approval": _stack_approval(context, read)}
        await context.cluster.merge(UPGRADE_PLANS, plan.metadata, {"spec": spec})
        log.info("plan approved by its stack", plan=proposal.approve)
    return proposal


def _proposal_view(context: Context, read: StackReading, steady: Steady) -> ProposalView:
    now, catalogue, spec = context.clock.now(), Catalogue(read.snapshot.images), read.stack.spec
    differ = {node.node for node in read.drift if node.drifted}
    drifted = [
        node
        for node in read.snapshot.nodes
        if node.name in differ
        and not (node.left_alone or node.taken)
        and unplanned_upgrades.find_need(node, catalogue) is None
    ]
    long = [node for node in drifted if (seen := steady.needs.get(node.uid)) is not None and seen.is_steady(now)]
    return ProposalView(
        mode=spec.on_drift,
        revision=read.target.revision,
        drifted=len(drifted),
        steady=len(long),
        images=proposals.images_seen(long, read.snapshot, read.target, now),
        plans=tuple(_plan_seen(plan) for plan in read.plans),
        blocked=_leads_away(read.plans, read.target.revision),
        limits=_plan_of(read).limits is not None,
        written=read.stack.status.update_revision == read.target.revision,
    )


def _leads_away(plans: Iterable[UpgradePlan], revision: str) -> bool:
    """Whether any plan has started to lead away from the revision: then a user decides."""
    return any(plan.spec.target_revision != revision == plan.status.stack_revision for plan in plans)


def _plan_of(read: StackReading) -> DriftPlanSpec:
    return read.stack.spec.drift_plan or DriftPlanSpec()


def _plan_seen(plan: UpgradePlan) -> PlanSeen:
    return PlanSeen(
        name=plan.metadata.name,
        target_revision=plan.spec.target_revision,
        phase=plan.status.phase,
        approved=plan.spec.approval is not None,
        number=plan_view.number_of(plan),
        ended_at=plan.status.ended_at or "",
    )


async def _create_plan(context: Context, read: StackReading, proposal: Proposal) -> None:
    stack, revision = read.stack.metadata, read.target.revision
    name = object_name(f"{stack.name[:24]}-drift-{revision}", stack.uid, revision, str(proposal.create))
    body: dict[str, Any] = {
        "apiVersion": UPGRADE_PLANS.api_version,
        "kind": UPGRADE_PLANS.kind,
        "metadata": {
            "name": name,
            "labels": {names.LABEL_STACK: stack.name},
            "annotations": {names.ANNOTATION_ON_DRIFT: str(proposal.create)},
        },
        "spec": {
            "stack": stack.name,
            "targetRevision": revision,
            **_plan_settings(read),
            **({"approval": _stack_approval(context, read)} if proposal.approved else {}),
        },
    }
    context.leadership.check()
    with suppress(ConflictError):  # created before a restart; its name follows from revision and number
        await context.cluster.create(UPGRADE_PLANS, body)
    log.info("plan created for drift", plan=name, approved=proposal.approved)


def _plan_settings(read: StackReading) -> dict[str, Any]:
    """Strategy, checkpoint settings and tolerated failures of the stack's own plans."""
    spec = _plan_of(read)
    return {
        "strategy": explicit_json(spec.strategy),
        "checkpoint": explicit_json(spec.checkpoint),
        "toleratedFailures": spec.tolerated_failures,
    }


def _stack_approval(context: Context, read: StackReading) -> dict[str, Any]:
    """An approval with the limits in the stack's spec. It names no expendable gang."""
    limits = _plan_of(read).limits
    if limits is None:
        raise AssertionError("nothing is approved without limits")
    meta = read.stack.metadata
    return explicit_json(
        Approval(
            by=f"GpuStack {meta.name}, generation {meta.generation}",
            at=timing.format_time(context.clock.now()),
            limits=ApprovalLimits(
                max_interruptions=limits.max_interruptions,
                max_lost_gpu_hours=limits.max_lost_gpu_hours,
                placement_unguaranteed=limits.placement_unguaranteed,
            ),
        )
    )
