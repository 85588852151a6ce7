"""Phase 12: one node upgrade by a plan, and the way back to the former driver. Each step is measured."""

from collections.abc import Iterator, Sequence

import msgspec

from upgrader.api.explicit import explicit_json
from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade
from upgrader.cli.first_node.closed_node import close_node
from upgrader.cli.first_node.first_hour import FirstHour
from upgrader.cli.first_node.reading_phases import find_stack
from upgrader.cli.first_node.stack_change import (
    StackChange,
    apply_change,
    foresee_change,
    read_upgrades,
    require_only_node,
    restore_stack,
)
from upgrader.cli.shared import cluster_reading
from upgrader.cli.shared.cluster_reading import DesiredStack
from upgrader.core import timing
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.errors import BlockedError, ConfigurationError
from upgrader.core.first_node.journal import PutBack, UndoAction
from upgrader.core.first_node.report_page import PhaseResult
from upgrader.core.first_node.report_rows import MeasuredRow
from upgrader.core.model.phases import NodePhase


async def upgrade_and_return(hour: FirstHour, changes: Sequence[str]) -> PhaseResult:
    """Change the stack of the node as `--set` does, wait for the plan, and lead the node back.

    Raises:
        BlockedError: other nodes would be upgraded too, a plan is under way, or pods with GPUs run on the node.
        ConfigurationError: no stack selects the node, or the node differs from it already.
        RolloutFailedError, DeadlineError: a plan did not complete; the way back follows.
    """
    stack, wish = await _read_wish(hour, changes)
    made = StackChange(former=explicit_json(stack.spec), wanted=wish.spec)
    seen = await foresee_change(hour.context, wish)
    require_only_node(seen, hour.node)
    await close_node(hour)
    change = PutBack(action=UndoAction.RESTORE_STACK, name=wish.name, value=msgspec.json.encode(made).decode())
    hour.record_change(change)
    plan = await apply_change(hour.context, wish, seen, hour.sleep)
    there = await read_upgrades(hour.context, [plan] if plan is not None else [], hour.node)
    plans_back = await restore_stack(hour.context, hour.sleep, wish.name, made)
    hour.drop_change(change)
    back = await read_upgrades(hour.context, plans_back, hour.node)
    return PhaseResult(
        message=f"{_describe_upgrades(there)}; way back: {_describe_upgrades(back)}",
        findings=tuple(_failed_upgrades([*there, *back])),
        measured=(*_measure_steps("upgrade", there), *_measure_steps("way back", back)),
    )


async def _read_wish(hour: FirstHour, changes: Sequence[str]) -> tuple[GpuStack, DesiredStack]:
    stack = await find_stack(hour, await hour.context.cluster.list(GPU_STACKS))
    if stack is None:
        raise ConfigurationError("no stack selects the node", resolution="Create a GpuStack for this node first.")
    name = stack.metadata.name
    if running := await cluster_reading.plan_under_way(hour.context, name):
        raise BlockedError(f"plan {running.metadata.name} of stack {name} is under way")
    present = await foresee_change(hour.context, DesiredStack(name=name, spec=explicit_json(stack.spec), live=stack))
    if any(each.node == hour.node and each.drifted for each in present.forecast.drift):
        raise ConfigurationError(
            "the node differs from its stack, so that the way back would not lead to what it is now",
            resolution=f"See `upgrader drift --stack {name}`, and let the stack upgrade the node first.",
        )
    wish = await cluster_reading.read_wanted_stack(hour.context, file=None, name=name, changes=changes)
    if not wish.is_edited:
        raise ConfigurationError("--set does not change the stack")
    return stack, wish


def _measure_steps(what: str, upgrades: Sequence[NodeUpgrade]) -> Iterator[MeasuredRow]:
    """The ended steps of upgrades, beside the limits that they had."""
    for upgrade in upgrades:
        for step in upgrade.status.steps:
            if step.ended_at is not None:
                began, ended = timing.parse_time(step.started_at), timing.parse_time(step.ended_at)
                yield MeasuredRow(
                    what=f"{what}: {step.name.value}",
                    seconds=(ended - began).total_seconds(),
                    limit=upgrade.spec.limits.phase_seconds(step.name) or 0,
                )


def _describe_upgrades(upgrades: Sequence[NodeUpgrade]) -> str:
    return ", ".join(upgrade.status.phase.value for upgrade in upgrades) or "no upgrade"


def _failed_upgrades(upgrades: Sequence[NodeUpgrade]) -> Iterator[Advice]:
    for upgrade in upgrades:
        if upgrade.status.phase is not NodePhase.SUCCEEDED:
            yield Advice(
                subject=f"upgrade {upgrade.metadata.name}",
                check="UpgradeFailed",
                severity=Severity.PROBLEM,
                message=f"{upgrade.status.reason}: {upgrade.status.message}",
                fix="See the log of the pods of the upgrade, and `upgrader why NODE`.",
            )
