"""Reads of `upgrader status`."""

import sys
from collections.abc import Sequence

from msgspec import Struct

from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import GpuStack, UpgradePlan
from upgrader.cli.shared import consent, progress
from upgrader.cli.shared.progress import Patience, Progress
from upgrader.cli.status import watch_display
from upgrader.cli.status.watch_display import Sleep
from upgrader.reconcile.runtime.context import Context


class Overview(Struct, frozen=True, kw_only=True):
    """All stacks and plans; plans sorted by age, the newest last."""

    stacks: Sequence[GpuStack]
    plans: Sequence[UpgradePlan]


async def read_overview(context: Context) -> Overview:
    """All stacks and plans."""
    plans = await context.cluster.list(UPGRADE_PLANS)
    return Overview(
        stacks=sorted(await context.cluster.list(GPU_STACKS), key=lambda stack: stack.metadata.name),
        plans=sorted(plans, key=lambda plan: (plan.metadata.creation_timestamp, plan.metadata.name)),
    )


async def read_plan_status(context: Context, name: str) -> Progress:
    """One plan with its upgrades and requests."""
    return await progress.read_progress(context, name)


async def watch_plan(context: Context, name: str | None, whole: float | None, sleep: Sleep) -> Progress:
    """Follow a plan until it ends, without a limit for blocked nodes."""
    plan = await consent.plan_named(context, name)
    patience = Patience(blocked=None, whole=whole)
    return await watch_display.follow_plan(context, plan.metadata.name, patience, stream=sys.stdout, sleep=sleep)
