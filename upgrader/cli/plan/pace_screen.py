"""The pace of a rollout, in sentences; only what is requested is shown."""

from datetime import datetime

from upgrader.cli.base import humanize
from upgrader.cli.plan.pace_parser import shown_window
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.model.validation import ValidationLevel


def strategy_sentences(strategy: StrategyFacts, now: datetime) -> list[str]:
    """One line for each option that is set."""
    lines = []
    if strategy.topology:
        parts = ", ".join(f"{budget.max_unavailable} per {budget.key}" for budget in strategy.topology)
        lines.append(f"At most {parts}.")
    if strategy.min_available_gpus:
        lines.append(f"At least {strategy.min_available_gpus} GPUs stay in service.")
    if strategy.canary:
        soak = f", then a soak of {humanize.show_duration(strategy.soak_seconds)}" if strategy.soak_seconds else ""
        lines.append(f"Canaries: one idle node of each class first{soak}.")
    lines += _validation_sentences(strategy)
    if strategy.completion_until is not None:
        until = humanize.show_time(strategy.completion_until, now)
        lines.append(f"Wait for completion of jobs that end before {until}.")
    if strategy.windows:
        lines.append(f"Batches start only {' or '.join(shown_window(one) for one in strategy.windows)}.")
    if strategy.deadline is not None:
        lines.append(f"Deadline: no batch starts that would end after {humanize.show_time(strategy.deadline, now)}.")
    if strategy.lane_width:
        lines.append(f"At most {strategy.lane_width} gangs write checkpoints to one storage at the same time.")
    if strategy.checkpoint_method:
        lines.append(f"Checkpoint methods of jobs that declare none: {strategy.checkpoint_method}.")
    if strategy.wait_for:
        lines.append(f"Waited for instead of evicted: {', '.join(strategy.wait_for)}.")
    if strategy.on_failure is OnFailure.ROLLBACK:
        lines.append(
            "When more nodes or gangs fail than are tolerated, the nodes are rolled back to the previous revision."
        )
    return lines


_CHECKS = {
    ValidationLevel.DEVICES: "checks of devices",
    ValidationLevel.ALL_REDUCE: "checks of devices and an all-reduce over all GPUs",
    ValidationLevel.DIAGNOSTICS: "checks of devices, an all-reduce over all GPUs, and diagnostics",
}


def _validation_sentences(strategy: StrategyFacts) -> list[str]:
    of_canaries = strategy.canary_validation if strategy.canary else None
    lines = []
    if of_canaries is not None and of_canaries is not strategy.validation:
        lines.append(f"Validation of canaries: {_CHECKS[of_canaries]}.")
    if strategy.validation is not ValidationLevel.DEVICES:
        lines.append(f"Validation of each node: {_CHECKS[strategy.validation]}.")
    return lines
