"""The plan that undoes another: asked for by a person (RolledBack), or made when more failed than was tolerated."""

from contextlib import suppress
from typing import Any

from upgrader.api import names
from upgrader.api.explicit import explicit
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.errors import ConflictError
from upgrader.core.model.phases import DesiredState, NodePhase, OnFailure
from upgrader.core.naming import object_name
from upgrader.core.upgrade_plan.plan_machine import ROLLED_BACK
from upgrader.reconcile.runtime.context import Context, record
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading


def wanted(plan: UpgradePlan) -> bool:
    """Whether a plan that has ended is to be undone by another."""
    return plan.metadata.deletion_timestamp is None and (
        plan.spec.state is DesiredState.ROLLED_BACK or plan.status.reason == ROLLED_BACK
    )


async def ensure(context: Context, read: PlanReading, plan: UpgradePlan) -> None:
    """Make it: an ordinary plan to the revision that the upgraded nodes had before."""
    upgraded = [one for one in read.upgrades if one.status.phase is NodePhase.SUCCEEDED]
    left = sorted({one.spec.source.revision for one in upgraded if one.spec.source.revision})
    if plan.status.rollback_plan is not None or not left:
        return
    if len(left) > 1:
        message = f"aborted; its nodes had revisions {', '.join(left)}: choose one and use upgrader rollback"
        if plan.status.message != message:
            await record(context, UPGRADE_PLANS, plan.metadata, {"message": message})
        return
    name = object_name(f"{plan.metadata.name}-undo", plan.metadata.uid, "undo")
    spec = explicit(plan.spec) | {
        "targetRevision": left[0],
        "state": "Running",
        "strategy": _strategy(plan),
        "approval": _approval(plan),
    }
    body = {
        "apiVersion": UPGRADE_PLANS.api_version,
        "kind": UPGRADE_PLANS.kind,
        "metadata": {"name": name, "labels": {names.LABEL_STACK: plan.spec.stack}},
        "spec": spec,
    }
    context.leadership.check()
    with suppress(ConflictError):  # made before a restart; its name follows from the plan
        await context.cluster.create(UPGRADE_PLANS, body)
    await record(context, UPGRADE_PLANS, plan.metadata, {"rollbackPlan": name})


def _approval(plan: UpgradePlan) -> dict[str, Any] | None:
    """The same consent, but to end nobody: what was named expendable was so for one rollout, and that one is over."""
    if plan.spec.approval is None:
        return None
    kept = explicit(plan.spec.approval)
    return kept | {"limits": kept["limits"] | {"expendable": []}}


def _strategy(plan: UpgradePlan) -> dict[str, Any]:
    """The same budgets and windows, without canaries (the revision is known) and without a deadline: it is to end."""
    kept = explicit(plan.spec.strategy)
    kept.pop("deadlineSeconds", None)
    return kept | {"canary": {"enabled": False}, "waitForCompletionSeconds": 0, "onFailure": OnFailure.PAUSE.value}
