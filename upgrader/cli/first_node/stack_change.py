"""A change of the stack of one node: a plan that makes it, and plans that lead back to what the stack was before.

Each of the functions can be repeated: it begins with what the cluster is now.
"""

from collections.abc import Sequence

from msgspec import Struct

from upgrader.api.explicit import explicit_json
from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade, UpgradePlan
from upgrader.cli.doctor.node_pod import Sleep
from upgrader.cli.shared import cluster_reading, consent
from upgrader.cli.shared.cluster_reading import DesiredStack, ForecastReading
from upgrader.cli.shared.consent import ApprovalTerms
from upgrader.cli.shared.progress import Patience, read_progress
from upgrader.cli.shared.stack_edits import Spec
from upgrader.cli.status import watch_display
from upgrader.core.errors import BlockedError, ClusterError, DeadlineError
from upgrader.core.model.phases import DesiredState, is_final
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.model.upgrade_limits import gang_stop_seconds
from upgrader.core.upgrade_plan.plan_machine import UNDER_WAY
from upgrader.reconcile.runtime.context import Context

ATTEMPTS = 3
"""Plans that lead back: the first may meet a node whose upgrade is still being reverted."""
POLL_SECONDS = 1.0
BLOCKED_SECONDS = 60.0

_STRATEGY = StrategyFacts(max_unavailable="100%")


class StackChange(Struct, frozen=True, kw_only=True):
    """A spec before and after a change, both with all defaults."""

    former: Spec
    wanted: Spec


async def foresee_change(context: Context, wish: DesiredStack) -> ForecastReading:
    """The forecast for the desired state of a stack, at once and without canaries."""
    target = await cluster_reading.target_of(context, wish.stack)
    return await cluster_reading.forecast_now(context, wish.stack, target, _STRATEGY)


async def apply_change(context: Context, wish: DesiredStack, seen: ForecastReading, sleep: Sleep) -> str | None:
    """Create the plan of a forecast, write the stack, and wait for the end of the plan.

    The approval allows no gang to be stopped. The plan is written first, as by `upgrader apply`.

    Returns:
        The name of the plan; None if none is required.

    Raises:
        RolloutFailedError, BlockedError, DeadlineError: the plan did not complete.
    """
    saved = cluster_reading.saved_of(wish, seen, _STRATEGY)
    name = consent.plan_name(saved)
    needed = consent.needs_plan(saved)
    if needed:
        terms = ApprovalTerms(by=consent.current_user(), max_interruptions=0)
        body = consent.plan_body(
            context,
            name,
            wish.name,
            saved.revision,
            _STRATEGY,
            terms,
            consent.checkpoint_spec(_STRATEGY, retry=600),
            made_at=context.clock.now(),
        )
        await consent.create_plan(context, body)
    if wish.is_edited:
        await consent.write_stack(context, wish)
    if not needed:
        return None
    patience = Patience(blocked=BLOCKED_SECONDS, whole=gang_stop_seconds([wish.stack.spec.limits]))
    await watch_display.follow_plan(context, name, patience, sleep=sleep)
    return name


async def restore_stack(context: Context, sleep: Sleep, name: str, change: StackChange) -> list[str]:
    """Lead a stack and its node back to what it was before a change; returns the names of the plans that did it.

    A stack that a user has changed since, or deleted, is left as it is.

    Raises:
        RolloutFailedError, BlockedError, DeadlineError: a plan did not complete.
        ClusterError: the node still differs after ATTEMPTS plans.
    """
    plans: list[str] = []
    for _ in range(ATTEMPTS):
        stack = await context.cluster.get(GPU_STACKS, name)
        if stack is None or explicit_json(stack.spec) not in (change.former, change.wanted):
            return plans
        wish = DesiredStack(name=name, spec=change.former, live=stack)
        await _end_plans(context, wish, change, sleep)
        seen = await foresee_change(context, wish)
        plan = await apply_change(context, wish, seen, sleep)
        if plan is not None:
            plans.append(plan)
        elif not await _wait_for_installs(context, wish, sleep):
            return plans
    raise ClusterError(
        f"the nodes of stack {name} still differ from its former spec",
        resolution=f"See `upgrader drift --stack {name}`, and run the command again.",
    )


async def read_upgrades(context: Context, plans: Sequence[str], node: str) -> list[NodeUpgrade]:
    """The upgrades of a node by these plans."""
    progress = [await read_progress(context, plan) for plan in plans]
    return [upgrade for each in progress for upgrade in each.upgrades if upgrade.spec.node.name == node]


async def _end_plans(context: Context, wish: DesiredStack, change: StackChange, sleep: Sleep) -> None:
    """Abort the plan of a change, also one that has not started, and wait until no plan is under way."""
    changed = DesiredStack(name=wish.name, spec=change.wanted, live=wish.live)
    revision = (await cluster_reading.target_of(context, changed.stack)).revision
    for plan in await context.cluster.list(UPGRADE_PLANS):
        if plan.spec.stack != wish.name or is_final(plan.status.phase):
            continue
        leads_away = plan.spec.target_revision == revision
        if leads_away and plan.spec.state is not DesiredState.ABORTED:
            await consent.amend_plan(context, plan, lambda _: {"state": DesiredState.ABORTED.value})
        if leads_away or plan.status.phase in UNDER_WAY:
            await _wait_for_end(context, plan, wish.stack, sleep)


async def _wait_for_end(context: Context, plan: UpgradePlan, stack: GpuStack, sleep: Sleep) -> None:
    seconds = gang_stop_seconds([stack.spec.limits])
    for _ in range(int(seconds / POLL_SECONDS)):
        there = await context.cluster.get(UPGRADE_PLANS, plan.metadata.name)
        if there is None or is_final(there.status.phase):
            return
        await sleep(POLL_SECONDS)
    raise DeadlineError(f"plan {plan.metadata.name} has not ended after {seconds:.0f} s")


async def _wait_for_installs(context: Context, wish: DesiredStack, sleep: Sleep) -> bool:
    """Wait for nodes that get their driver without a plan; whether there were any."""
    seconds = gang_stop_seconds([wish.stack.spec.limits])
    for waited in range(int(seconds / POLL_SECONDS)):
        seen = await foresee_change(context, wish)
        if not seen.forecast.summary.drifted:
            return waited > 0
        await sleep(POLL_SECONDS)
    raise DeadlineError(f"the nodes of stack {wish.name} have no driver after {seconds:.0f} s")


def require_only_node(seen: ForecastReading, node: str) -> None:
    """Check that a change upgrades this node and no other.

    Raises:
        BlockedError: the stack selects other nodes, or the node is blocked or not upgraded.
    """
    others = sorted(each.name for each in seen.snapshot.nodes if each.name != node)
    if others:
        raise BlockedError(
            f"the stack selects {len(others)} other node(s), which a change would upgrade too",
            resolution=f"Create a stack with nodeSelector kubernetes.io/hostname: {node}, and exclude the node from "
            "the other stack.",
        )
    if not any(node in batch.nodes for batch in seen.forecast.batches):
        reasons = "; ".join(blocker.message for blocker in seen.forecast.blockers)
        raise BlockedError("the change does not upgrade the node", details=reasons or "it does not differ from it")
