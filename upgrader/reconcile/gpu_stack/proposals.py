"""Plans that a stack makes and approves by itself, as `spec.onDrift` says; decided in core.gpu_stack.proposals."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import structlog

from upgrader.api import names
from upgrader.api.explicit import explicit
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


async def answer(context: Context, read: StackReading, steady: Steady) -> Proposal | None:
    """Make or approve the stack's own plan where that is due; what was decided, None where drift is only reported."""
    if read.stack.spec.on_drift is OnDrift.REPORT:
        return None
    found = proposals.decide(_view(context, read, steady))
    if found is None or not (found.create or found.approve):
        return found
    if found.create:
        await _create(context, read, found)
    else:
        plan = next(one for one in read.plans if one.metadata.name == found.approve)
        context.leadership.check()
        # In one write: what is approved is how the stack wants it now, not how it was when the plan was proposed.
        spec = {**_how(read), "approval": _approval(context, read)}
        await context.cluster.merge(UPGRADE_PLANS, plan.metadata, {"spec": spec})
        log.info("plan approved by its stack", plan=found.approve)
    return found


def _view(context: Context, read: StackReading, steady: Steady) -> ProposalView:
    now, catalogue, spec = context.clock.now(), Catalogue(read.snapshot.images), read.stack.spec
    differ = {one.node for one in read.drift if one.drifted}
    drifted = [
        node
        for node in read.snapshot.nodes
        if node.name in differ
        and not (node.left_alone or node.taken)
        and unplanned_upgrades.need(node, catalogue) is None
    ]
    long = [node for node in drifted if (seen := steady.needs.get(node.uid)) is not None and seen.steady(now)]
    return ProposalView(
        mode=spec.on_drift,
        revision=read.target.revision,
        drifted=len(drifted),
        steady=len(long),
        images=proposals.images_seen(long, read.snapshot, read.target, now),
        plans=tuple(_seen(one) for one in read.plans),
        blocked=_led_away(read.plans, read.target.revision),
        limits=_plan_of(read).limits is not None,
        written=read.stack.status.update_revision == read.target.revision,
    )


def _led_away(plans: Iterable[UpgradePlan], revision: str) -> bool:
    """Whether a plan ever began to lead away from the revision, whatever became of it: then a person decides."""
    return any(one.spec.target_revision != revision == one.status.stack_revision for one in plans)


def _plan_of(read: StackReading) -> DriftPlanSpec:
    return read.stack.spec.drift_plan or DriftPlanSpec()


def _seen(plan: UpgradePlan) -> PlanSeen:
    return PlanSeen(
        name=plan.metadata.name,
        target_revision=plan.spec.target_revision,
        phase=plan.status.phase,
        approved=plan.spec.approval is not None,
        number=plan_view.number_of(plan),
        ended_at=plan.status.ended_at or "",
    )


async def _create(context: Context, read: StackReading, found: Proposal) -> None:
    stack, revision = read.stack.metadata, read.target.revision
    name = object_name(f"{stack.name[:24]}-drift-{revision}", stack.uid, revision, str(found.create))
    body: dict[str, Any] = {
        "apiVersion": UPGRADE_PLANS.api_version,
        "kind": UPGRADE_PLANS.kind,
        "metadata": {
            "name": name,
            "labels": {names.LABEL_STACK: stack.name},
            "annotations": {names.ANNOTATION_ON_DRIFT: str(found.create)},
        },
        "spec": {
            "stack": stack.name,
            "targetRevision": revision,
            **_how(read),
            **({"approval": _approval(context, read)} if found.approved else {}),
        },
    }
    context.leadership.check()
    with suppress(ConflictError):  # made before a restart; its name follows from the revision and the number
        await context.cluster.create(UPGRADE_PLANS, body)
    log.info("plan made for drift", plan=name, approved=found.approved)


def _how(read: StackReading) -> dict[str, Any]:
    """How the stack's own plans go."""
    spec = _plan_of(read)
    return {
        "strategy": explicit(spec.strategy),
        "checkpoint": explicit(spec.checkpoint),
        "toleratedFailures": spec.tolerated_failures,
    }


def _approval(context: Context, read: StackReading) -> dict[str, Any]:
    """The limits that a person wrote into the stack, and no other. Nobody is ever expendable by it."""
    limits = _plan_of(read).limits
    if limits is None:
        raise AssertionError("nothing is approved without limits")
    meta = read.stack.metadata
    return explicit(
        Approval(
            by=f"GpuStack {meta.name}, generation {meta.generation}",
            at=timing.show(context.clock.now()),
            limits=ApprovalLimits(
                max_interruptions=limits.max_interruptions,
                max_lost_gpu_hours=limits.max_lost_gpu_hours,
                placement_unguaranteed=limits.placement_unguaranteed,
            ),
        )
    )
