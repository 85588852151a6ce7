"""Between a plan's spec and the strategy that the forecast goes by, in both directions.

A spec speaks of durations, counted from the start of its plan; a forecast needs times. Before the start they are
counted from now.
"""

from datetime import datetime, timedelta
from typing import Any

from upgrader.api.explicit import explicit
from upgrader.api.v1alpha1 import Canary, Strategy, UpgradePlan, Window
from upgrader.api.v1alpha1 import TopologyBudget as TopologyBudgetSpec
from upgrader.core import timing
from upgrader.core.model import strategy as core
from upgrader.core.model.strategy import StrategyFacts, Weekday

DAYS = tuple(Weekday)


def strategy_of(plan: UpgradePlan, now: datetime) -> StrategyFacts:
    """What of the plan the forecast goes by; those canaries that have ended soak before any other node is taken."""
    spec, checkpoint, status = plan.spec.strategy, plan.spec.checkpoint, plan.status
    limits = plan.spec.approval.limits if plan.spec.approval is not None else None
    started = timing.parse(status.started_at) if status.started_at else now
    return StrategyFacts(
        max_unavailable=spec.max_unavailable,
        topology=tuple(
            core.TopologyBudget(key=one.key, max_unavailable=one.max_unavailable) for one in spec.topology_budgets
        ),
        min_available_gpus=spec.min_available_gpus,
        canary=spec.canary.enabled,
        soak_seconds=spec.canary.soak_seconds,
        not_before=timing.parse(status.soak_until) if status.soak_until else None,
        completion_until=started + timedelta(seconds=spec.wait_for_completion_seconds)
        if spec.wait_for_completion_seconds
        else None,
        deadline=deadline_of(plan, started),
        windows=tuple(_window(one) for one in spec.windows),
        lane_width=checkpoint.lanes.max_concurrent,
        checkpoint_seconds=checkpoint.timeout_seconds,
        checkpoint_method=checkpoint.method or "",
        expendable=tuple(limits.expendable) if limits is not None else (),
        wait_for=tuple(checkpoint.wait_for),
        placement_unguaranteed=limits.placement_unguaranteed if limits is not None else False,
        on_failure=spec.on_failure,
    )


def deadline_of(plan: UpgradePlan, started: datetime) -> datetime | None:
    """When the plan starts no batch any more."""
    seconds = plan.spec.strategy.deadline_seconds
    return None if seconds is None else started + timedelta(seconds=seconds)


def strategy_spec(strategy: StrategyFacts, made_at: datetime) -> dict[str, Any]:
    """The strategy of a plan that follows a forecast made at `made_at`: its times become durations again."""
    until, deadline = strategy.completion_until, strategy.deadline
    return explicit(
        Strategy(
            max_unavailable=strategy.max_unavailable,
            topology_budgets=[
                TopologyBudgetSpec(key=one.key, max_unavailable=one.max_unavailable) for one in strategy.topology
            ],
            min_available_gpus=strategy.min_available_gpus,
            canary=Canary(enabled=strategy.canary, soak_seconds=strategy.soak_seconds),
            wait_for_completion_seconds=max(0, round((until - made_at).total_seconds())) if until is not None else 0,
            windows=[
                Window(
                    days=[DAYS[day] for day in one.days] if len(one.days) < len(DAYS) else [],
                    start=one.start,
                    end=one.end,
                    time_zone=one.time_zone,
                )
                for one in strategy.windows
            ],
            deadline_seconds=round((deadline - made_at).total_seconds()) if deadline is not None else None,
            on_failure=strategy.on_failure,
        )
    )


def _window(window: Window) -> core.Window:
    days = sorted(DAYS.index(day) for day in set(window.days)) or range(len(DAYS))
    return core.Window(days=tuple(days), start=window.start, end=window.end, time_zone=window.time_zone)
