"""The pace that a rollout was asked to keep, in sentences; what was not asked for is not said."""

from datetime import datetime

from upgrader.cli.base import humanize
from upgrader.cli.plan.pace_parser import shown_window
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import StrategyFacts


def sentences(strategy: StrategyFacts, now: datetime) -> list[str]:
    """One line for each thing that was asked for."""
    lines = []
    if strategy.topology:
        parts = ", ".join(f"{one.max_unavailable} per {one.key}" for one in strategy.topology)
        lines.append(f"At most {parts}.")
    if strategy.min_available_gpus:
        lines.append(f"At least {strategy.min_available_gpus} GPUs stay in service.")
    if strategy.canary:
        soak = f", then {humanize.lasting(strategy.soak_seconds)} of watching" if strategy.soak_seconds else ""
        lines.append(f"First one idle node of each class{soak}.")
    if strategy.completion_until is not None:
        until = humanize.clock(strategy.completion_until, now)
        lines.append(f"Jobs that end by themselves before {until} are waited for.")
    if strategy.windows:
        lines.append(f"Batches start only {' or '.join(shown_window(one) for one in strategy.windows)}.")
    if strategy.deadline is not None:
        lines.append(f"No batch starts that would not end by {humanize.clock(strategy.deadline, now)}.")
    if strategy.lane_width:
        lines.append(f"At most {strategy.lane_width} gangs write checkpoints to one storage at once.")
    if strategy.checkpoint_method:
        lines.append(f"Jobs that do not say how to ask them are asked by {strategy.checkpoint_method}.")
    if strategy.wait_for:
        lines.append(f"Waited for instead of evicted: {', '.join(strategy.wait_for)}.")
    if strategy.on_failure is OnFailure.ROLLBACK:
        lines.append("When more fails than is tolerated, nodes go back to the revision before.")
    return lines
