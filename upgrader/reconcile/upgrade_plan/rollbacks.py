"""The rollback plan: requested by a user (RolledBack), or created when failures exceed the tolerated number."""

from contextlib import suppress
from typing import Any

from upgrader.api import names
from upgrader.api.explicit import explicit_json
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.errors import ConflictError
from upgrader.core.model.phases import DesiredState, NodePhase, OnFailure
from upgrader.core.naming import object_name
from upgrader.core.upgrade_plan.plan_machine import ROLLED_BACK
from upgrader.reconcile.runtime.context import Context, record_status
from upgrader.reconcile.upgrade_plan.plan_reading import PlanReading


def needs_rollback(plan: UpgradePlan) -> bool:
    """Whether an ended plan requires a rollback plan."""
    return plan.metadata.deletion_timestamp is None and (
        plan.spec.state is DesiredState.ROLLED_BACK or plan.status.reason == ROLLED_BACK
    )


async def ensure_rollback_plan(context: Context, read: PlanReading, plan: UpgradePlan) -> None:
    """Create the rollback plan: an ordinary plan to the previous revision of the upgraded nodes."""
    upgraded = [upgrade for upgrade in read.upgrades if upgrade.status.phase is NodePhase.SUCCEEDED]
    left = sorted({upgrade.spec.source.revision for upgrade in upgraded if upgrade.spec.source.revision})
    if plan.status.rollback_plan is not None or not left:
        return
    if len(left) > 1:
        message = f"aborted; its nodes had revisions {', '.join(left)}: choose one and run `upgrader rollback`"
        if plan.status.message != message:
            await record_status(context, UPGRADE_PLANS, plan.metadata, {"message": message})
        return
    name = object_name(f"{plan.metadata.name}-undo", plan.metadata.uid, "undo")
    spec = explicit_json(plan.spec) | {
        "targetRevision": left[0],
        "state": "Running",
        "strategy": _rollback_strategy(plan),
        "approval": _rollback_approval(plan),
    }
    body = {
        "apiVersion": UPGRADE_PLANS.api_version,
        "kind": UPGRADE_PLANS.kind,
        "metadata": {"name": name, "labels": {names.LABEL_STACK: plan.spec.stack}},
        "spec": spec,
    }
    context.leadership.check()
    with suppress(ConflictError):  # created before a restart; its name follows from the plan
        await context.cluster.create(UPGRADE_PLANS, body)
    await record_status(context, UPGRADE_PLANS, plan.metadata, {"rollbackPlan": name})


def _rollback_approval(plan: UpgradePlan) -> dict[str, Any] | None:
    """The same approval without expendable gangs: those were approved for the first rollout only."""
    if plan.spec.approval is None:
        return None
    kept = explicit_json(plan.spec.approval)
    return kept | {"limits": kept["limits"] | {"expendable": []}}


def _rollback_strategy(plan: UpgradePlan) -> dict[str, Any]:
    """The same budgets and windows, without canaries (the revision has run before), without a deadline, and with the
    checks of devices only: an earlier revision may have no programs for more.
    """
    kept = explicit_json(plan.spec.strategy)
    kept.pop("deadlineSeconds", None)
    kept.pop("validation", None)
    return kept | {"canary": {"enabled": False}, "waitForCompletionSeconds": 0, "onFailure": OnFailure.PAUSE.value}
