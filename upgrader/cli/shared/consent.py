"""Writes of users: plans with their approval, stacks, and changes of state, approval and toleratedFailures of a
plan.
"""

import getpass
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from upgrader.api import names
from upgrader.api.explicit import explicit_json
from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import Approval, ApprovalLimits, CheckpointDefaults, Lanes, UpgradePlan
from upgrader.cli.shared.cluster_reading import DesiredStack
from upgrader.core import timing
from upgrader.core.errors import ConfigurationError, ConflictError, StaleForecastError
from upgrader.core.explain.plan_file import SavedForecast, check_saved
from upgrader.core.model.phases import is_final
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.naming import object_name
from upgrader.reconcile.facts.strategies import strategy_spec
from upgrader.reconcile.runtime.context import Context

ATTEMPTS = 5
"""The status of a plan changes while it runs; each attempt reads the plan again."""


class ApprovalTerms(Struct, frozen=True, kw_only=True):
    """The approver and the limits of an approval."""

    by: str
    max_interruptions: int
    max_lost_gpu_hours: float | None = None  # None: no limit
    expendable: tuple[str, ...] = ()
    placement_unguaranteed: bool = False

    def approval(self, context: Context) -> dict[str, Any]:
        """The field spec.approval of a plan."""
        limits = ApprovalLimits(
            max_interruptions=self.max_interruptions,
            max_lost_gpu_hours=self.max_lost_gpu_hours,
            expendable=list(self.expendable),
            placement_unguaranteed=self.placement_unguaranteed,
        )
        return explicit_json(Approval(by=self.by, at=timing.format_time(context.clock.now()), limits=limits))


def current_user() -> str:
    """The current user as USER@HOST, which is the approver of a plan without --approved-by."""
    return f"{getpass.getuser()}@{socket.gethostname()}"[:253]


def reject_stale_forecast(saved: SavedForecast, fresh: SavedForecast) -> None:
    """Reject a stale forecast.

    Raises:
        StaleForecastError: with all reasons.
    """
    stale = check_saved(saved, fresh)
    if stale:
        raise StaleForecastError(
            "the forecast is stale",
            details="\n".join(f"{finding.reason.value}: {finding.message}" for finding in stale),
            resolution="Create a new forecast with `upgrader plan -o FILE`, review it, and apply it.",
        )


def plan_name(saved: SavedForecast) -> str:
    """The name of the plan of a forecast: applying a forecast twice creates one plan."""
    version = str(saved.spec["driver"]["version"])
    return object_name(
        f"{saved.stack[:24]}-{version}", saved.stack, saved.revision, timing.format_time(saved.created_at)
    )


def needs_plan(saved: SavedForecast) -> bool:
    """Whether a node requires more than an installation without a plan."""
    return saved.forecast.summary.drifted > saved.forecast.summary.installs


def checkpoint_spec(strategy: StrategyFacts, retry: int) -> CheckpointDefaults:
    """The checkpoint defaults of a plan with this strategy; `retry` is in seconds."""
    return CheckpointDefaults(
        timeout_seconds=strategy.checkpoint_seconds,
        method=strategy.checkpoint_method or None,
        retry_seconds=retry,
        lanes=Lanes(max_concurrent=strategy.lane_width),
        wait_for=list(strategy.wait_for),
    )


def plan_body(
    context: Context,
    name: str,
    stack: str,
    revision: str,
    strategy: StrategyFacts,
    consent: ApprovalTerms,
    checkpoint: CheckpointDefaults,
    *,
    made_at: datetime,
) -> dict[str, Any]:
    """An approved plan; `made_at` is the time of the forecast that the times of the strategy refer to."""
    return {
        "apiVersion": UPGRADE_PLANS.api_version,
        "kind": UPGRADE_PLANS.kind,
        "metadata": {"name": name, "labels": {names.LABEL_STACK: stack}},
        "spec": {
            "stack": stack,
            "targetRevision": revision,
            "strategy": strategy_spec(strategy, made_at),
            "checkpoint": explicit_json(checkpoint),
            "approval": consent.approval(context),
        },
    }


async def create_plan(context: Context, body: Mapping[str, Any]) -> str:
    """Create the plan, unless an earlier attempt created it; returns its name."""
    name = str(body["metadata"]["name"])
    try:
        await context.cluster.create(UPGRADE_PLANS, body)
    except ConflictError:
        there = await context.cluster.get(UPGRADE_PLANS, name)
        if there is None or there.spec.target_revision != body["spec"]["targetRevision"]:
            raise
    return name


async def write_stack(context: Context, wish: DesiredStack) -> None:
    """Write the desired state of the stack, unless the stack was edited since it was read.

    Raises:
        StaleForecastError: the stack was edited meanwhile.
    """
    if wish.live is None:
        manifest = {"metadata": {"name": wish.name}, "spec": wish.spec}
        await context.cluster.create(GPU_STACKS, manifest)
        return
    operations: list[Mapping[str, Any]] = [
        {"op": "test", "path": "/metadata/generation", "value": wish.live.metadata.generation},
        {"op": "replace", "path": "/spec", "value": wish.spec},
    ]
    try:
        await context.cluster.edit(GPU_STACKS, wish.live.metadata, operations)
    except ConflictError as error:
        raise StaleForecastError(
            f"stack {wish.name} was edited meanwhile",
            details=error.details,
            resolution="The new plan waits for its revision. Abort it and create a new forecast.",
        ) from error


async def plan_named(context: Context, name: str | None) -> UpgradePlan:
    """The plan with a name, or the only plan that has not ended.

    Raises:
        ConfigurationError: the plan is not found, or a name is required.
    """
    if name is not None:
        plan = await context.cluster.get(UPGRADE_PLANS, name)
        if plan is None:
            raise ConfigurationError(f"plan {name} not found", resolution="`upgrader status` lists all plans.")
        return plan
    open_plans = [plan for plan in await context.cluster.list(UPGRADE_PLANS) if not is_final(plan.status.phase)]
    if len(open_plans) != 1:
        known = ", ".join(sorted(plan.metadata.name for plan in open_plans)) or "none"
        raise ConfigurationError(
            f"a plan must be specified; plans that have not ended: {known}", resolution="Specify the name of a plan."
        )
    return open_plans[0]


Change = Callable[[UpgradePlan], Mapping[str, Any]]
"""Returns a merge patch of the spec of a plan."""


async def amend_plan(context: Context, plan: UpgradePlan, change: Change) -> UpgradePlan:
    """Change the spec of a plan.

    Raises:
        ConfigurationError: the plan has ended, or the API server rejects the change.
        ConflictError: all attempts conflicted with other writes.
    """
    for attempt in range(1, ATTEMPTS + 1):
        if is_final(plan.status.phase):
            raise ConfigurationError(
                f"plan {plan.metadata.name} has ended ({plan.status.phase.value})",
                details=plan.status.message,
                resolution="Create another plan with `upgrader plan` or `upgrader rollback`.",
            )
        try:
            return await context.cluster.merge(UPGRADE_PLANS, plan.metadata, {"spec": dict(change(plan))})
        except ConflictError:
            if attempt == ATTEMPTS:
                raise
            plan = await plan_named(context, plan.metadata.name)
    raise AssertionError("the last attempt returns or raises")
