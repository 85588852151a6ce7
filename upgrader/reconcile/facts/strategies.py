"""Conversion between a plan's spec and the strategy of a forecast, in both directions.

A spec contains durations from the start of its plan; a forecast needs times. Before the start, durations count from
now.
"""

from datetime import datetime, timedelta
from typing import Any

from upgrader.api.explicit import explicit_json
from upgrader.api.v1alpha1 import Canary, Strategy, UpgradePlan
from upgrader.core import timing
from upgrader.core.model.strategy import StrategyFacts


def strategy_of(plan: UpgradePlan, now: datetime) -> StrategyFacts:
    """The strategy of a plan for the forecast, including the soak time of ended canaries."""
    spec, checkpoint, status = plan.spec.strategy, plan.spec.checkpoint, plan.status
    limits = plan.spec.approval.limits if plan.spec.approval is not None else None
    started = timing.parse_time(status.started_at) if status.started_at else now
    return StrategyFacts(
        max_unavailable=spec.max_unavailable,
        topology=spec.topology_budgets,
        min_available_gpus=spec.min_available_gpus,
        canary=spec.canary.enabled,
        soak_seconds=spec.canary.soak_seconds,
        not_before=timing.parse_time(status.soak_until) if status.soak_until else None,
        completion_until=started + timedelta(seconds=spec.wait_for_completion_seconds)
        if spec.wait_for_completion_seconds
        else None,
        deadline=deadline_of(plan, started),
        windows=spec.windows,
        lane_width=checkpoint.lanes.max_concurrent,
        checkpoint_seconds=checkpoint.timeout_seconds,
        checkpoint_method=checkpoint.method or "",
        expendable=tuple(limits.expendable) if limits is not None else (),
        wait_for=tuple(checkpoint.wait_for),
        placement_unguaranteed=limits.placement_unguaranteed if limits is not None else False,
        validation=spec.validation,
        canary_validation=spec.canary.validation,
        on_failure=spec.on_failure,
    )


def deadline_of(plan: UpgradePlan, started: datetime) -> datetime | None:
    """The time after which the plan starts no batch."""
    seconds = plan.spec.strategy.deadline_seconds
    return None if seconds is None else started + timedelta(seconds=seconds)


def strategy_spec(strategy: StrategyFacts, made_at: datetime) -> dict[str, Any]:
    """The spec of a strategy from a forecast of `made_at`: times are converted into durations."""
    until, deadline = strategy.completion_until, strategy.deadline
    return explicit_json(
        Strategy(
            max_unavailable=strategy.max_unavailable,
            topology_budgets=strategy.topology,
            min_available_gpus=strategy.min_available_gpus,
            canary=Canary(
                enabled=strategy.canary,
                soak_seconds=strategy.soak_seconds,
                validation=strategy.canary_validation,
            ),
            wait_for_completion_seconds=max(0, round((until - made_at).total_seconds())) if until is not None else 0,
            windows=strategy.windows,
            deadline_seconds=round((deadline - made_at).total_seconds()) if deadline is not None else None,
            validation=strategy.validation,
            on_failure=strategy.on_failure,
        )
    )
