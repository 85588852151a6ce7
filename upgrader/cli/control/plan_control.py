"""Actions of approve, pause, resume, abort and rollback; each returns a sentence with its effect."""

import msgspec
from msgspec import Struct

from upgrader.api.explicit import explicit_json
from upgrader.api.kubernetes import ControllerRevision
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import CheckpointDefaults, GpuStack, Strategy, UpgradePlan
from upgrader.cli.plan import pace_parser
from upgrader.cli.plan.plan_actions import Agree
from upgrader.cli.shared import cluster_reading, consent
from upgrader.cli.shared.cluster_reading import DesiredStack
from upgrader.cli.shared.consent import ApprovalTerms
from upgrader.core import timing
from upgrader.core.errors import ConfigurationError
from upgrader.core.explain.plan_file import consented_loss
from upgrader.core.model.fleet import Snapshot
from upgrader.core.model.phases import DesiredState, is_final
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.naming import object_name
from upgrader.core.upgrade_plan.plan_machine import CANARY_FAILED
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.observe import revisions
from upgrader.reconcile.runtime.context import Context


class AdditionalLimits(Struct, frozen=True, kw_only=True):
    """Limits of an approval beyond the forecast; gangs by any name that identifies them."""

    unguaranteed: bool = False
    expendable: tuple[str, ...] = ()
    max_lost_gpu_hours: float | None = None  # None: the loss so far, and the expected loss of the rest

    def extend_strategy(self, strategy: StrategyFacts, snapshot: Snapshot) -> StrategyFacts:
        """The strategy of a plan with this approval.

        Raises:
            ConfigurationError: a name matches no gang, or several.
        """
        named = pace_parser.gangs_named("--expendable", self.expendable, snapshot)
        return msgspec.structs.replace(
            strategy,
            placement_unguaranteed=self.unguaranteed or strategy.placement_unguaranteed,
            expendable=tuple(dict.fromkeys((*strategy.expendable, *named))),
        )


async def approve_plan(
    context: Context, name: str | None, *, by: str | None, more: AdditionalLimits, agree: Agree
) -> str:
    """Approve a plan: the interruptions and losses so far, and those of the forecast."""
    plan = await consent.plan_named(context, name)
    stack = await cluster_reading.stack_named(context, plan.spec.stack)
    seen, _ = await cluster_reading.foresee_rest(context, stack, plan, raised=more.extend_strategy)
    wish = DesiredStack(name=plan.spec.stack, spec=explicit_json(stack.spec), live=stack)
    strategy = more.extend_strategy(strategy_of(plan, context.clock.now()), seen.snapshot)
    saved = cluster_reading.saved_of(wish, seen, strategy)
    agree(saved)
    lost = plan.status.lost_gpu_hours.actual + consented_loss(saved.limits.max_lost_gpu_hours or 0.0)
    agreed = ApprovalTerms(
        by=by or consent.current_user(),
        max_interruptions=plan.status.counts.interruptions + saved.limits.max_interruptions,
        max_lost_gpu_hours=more.max_lost_gpu_hours if more.max_lost_gpu_hours is not None else lost,
        expendable=strategy.expendable,
        placement_unguaranteed=strategy.placement_unguaranteed,
    )
    await consent.amend_plan(context, plan, lambda _: {"approval": agreed.approval(context)})
    ended = f"; {', '.join(agreed.expendable)} may be ended without a checkpoint" if agreed.expendable else ""
    return (
        f"plan {plan.metadata.name} is approved by {agreed.by}: at most {agreed.max_interruptions} gangs are stopped "
        f"and {agreed.max_lost_gpu_hours:.1f} GPU-hours lost in all{ended}"
    )


async def pause_plan(context: Context, name: str | None) -> str:
    """Pause a plan: no further batch starts."""
    plan = await consent.amend_plan(
        context, await consent.plan_named(context, name), lambda _: {"state": DesiredState.PAUSED.value}
    )
    under_way = any(batch.ended_at is None for batch in plan.status.batches)
    return f"plan {plan.metadata.name} is paused{'; the current batch is completed' if under_way else ''}"


async def resume_plan(context: Context, name: str | None) -> str:
    """Resume a plan and tolerate its failures so far; failed canaries are not repeated."""

    def resume_and_tolerate(plan: UpgradePlan) -> dict[str, object]:
        tolerated = max(plan.spec.tolerated_failures, len(plan.status.failures))
        without = {"strategy": {"canary": {"enabled": False}}} if plan.status.reason == CANARY_FAILED else {}
        return {"state": DesiredState.RUNNING.value, "toleratedFailures": tolerated, **without}

    plan = await consent.amend_plan(context, await consent.plan_named(context, name), resume_and_tolerate)
    failures = plan.spec.tolerated_failures
    return f"plan {plan.metadata.name} is resumed{f'; {failures} failures are tolerated' if failures else ''}"


async def abort_plan(context: Context, name: str | None, *, undo: bool) -> str:
    """Abort a plan; with `undo` a rollback plan then leads its nodes back."""
    state = DesiredState.ROLLED_BACK if undo else DesiredState.ABORTED
    plan = await consent.amend_plan(context, await consent.plan_named(context, name), lambda _: {"state": state.value})
    then = "; then a rollback plan is created" if undo else ""
    return f"plan {plan.metadata.name} is being aborted{then}; follow it with `upgrader status --watch`"


class RollbackOptions(Struct, frozen=True, kw_only=True):
    """Options of a rollback."""

    stack: str | None = None
    revision: str | None = None
    budget: int | str | None = None
    unguaranteed: bool = False


async def roll_back(context: Context, wish: RollbackOptions, *, by: str | None, agree: Agree) -> str:
    """Create a plan to an earlier revision, and abort the running plan, which it waits for.

    Raises:
        ConfigurationError: there is no earlier revision, or the named revision is not found.
    """
    stack = await cluster_reading.stack_named(context, wish.stack)
    older = await _rollback_revision(context, stack, wish.revision)
    target = await revisions.read_target(context, stack.metadata.name, older)
    if target is None:
        raise ConfigurationError(f"revision {older} of stack {stack.metadata.name} not found")
    last = await _last_plan(context, stack.metadata.name)
    usual = last.spec.strategy if last is not None else Strategy()
    strategy = StrategyFacts(
        max_unavailable=wish.budget or usual.max_unavailable, placement_unguaranteed=wish.unguaranteed
    )
    seen = await cluster_reading.forecast_now(context, stack, target, strategy, back=True)
    kept = await _spec_of(context, stack, older)
    saved = cluster_reading.saved_of(DesiredStack(name=stack.metadata.name, spec=kept, live=stack), seen, strategy)
    agree(saved)
    running = await cluster_reading.plan_under_way(context, stack.metadata.name)
    agreed = ApprovalTerms(
        by=by or consent.current_user(),
        max_interruptions=saved.limits.max_interruptions + _stopped_now(running),
        placement_unguaranteed=strategy.placement_unguaranteed,
    )
    readable = f"{stack.metadata.name[:20]}-back-to-{target.driver_version}"
    made = object_name(readable, stack.metadata.name, older, timing.format_time(context.clock.now()))
    checkpoint = last.spec.checkpoint if last is not None else CheckpointDefaults()
    body = consent.plan_body(
        context, made, stack.metadata.name, older, strategy, agreed, checkpoint, made_at=context.clock.now()
    )
    await consent.create_plan(context, body)
    if running is not None and not is_final(running.status.phase):
        await consent.amend_plan(context, running, lambda _: {"state": DesiredState.ABORTED.value})
        return f"plan {made} rolls the nodes back to revision {older} after plan {running.metadata.name} is aborted"
    return f"plan {made} rolls the nodes back to revision {older}"


async def _last_plan(context: Context, stack: str) -> UpgradePlan | None:
    """The newest plan of a stack, whose pace a rollback uses."""
    plans = [plan for plan in await context.cluster.list(UPGRADE_PLANS) if plan.spec.stack == stack]
    return max(plans, key=lambda plan: (plan.metadata.creation_timestamp, plan.metadata.name), default=None)


def _stopped_now(running: UpgradePlan | None) -> int:
    """Number of gangs of batches that have not ended: they may restart on nodes that are rolled back too."""
    batches = running.status.batches if running is not None else []
    return sum(len(group.gangs) for batch in batches if batch.ended_at is None for group in batch.groups)


async def _rollback_revision(context: Context, stack: GpuStack, wanted: str | None) -> str:
    kept = await revisions.list_revisions(context, stack.metadata.name)
    known = [_revision_hash(stack, revision) for revision in kept]
    if wanted is not None:
        if wanted not in known:
            raise ConfigurationError(
                f"revision {wanted} of stack {stack.metadata.name} not found", details=f"revisions: {', '.join(known)}"
            )
        return wanted
    status = stack.status
    if status.current_revision and status.current_revision != status.update_revision:
        return status.current_revision
    before = known[: known.index(status.update_revision)] if status.update_revision in known else []
    if not before:
        raise ConfigurationError(
            f"stack {stack.metadata.name} has no earlier revision",
            details=f"revisions: {', '.join(known) or 'none'}",
            resolution="Specify a revision with --to.",
        )
    return before[-1]


def _revision_hash(stack: GpuStack, kept: ControllerRevision) -> str:
    return kept.metadata.name.removeprefix(f"{stack.metadata.name}-")


async def _spec_of(context: Context, stack: GpuStack, revision: str) -> dict[str, object]:
    kept = await revisions.list_revisions(context, stack.metadata.name)
    return next(dict(entry.data["spec"]) for entry in kept if _revision_hash(stack, entry) == revision)
