"""The actions of the commands, without click and rich: each is one function on a connection."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader.cli.plan import pace_parser
from upgrader.cli.shared import cluster_reading, consent
from upgrader.cli.shared.cluster_reading import DesiredStack, ForecastReading
from upgrader.cli.shared.consent import ApprovalTerms
from upgrader.core.errors import ConfigurationError
from upgrader.core.explain import gang_explanation
from upgrader.core.explain import node_explanation as explaining
from upgrader.core.explain import plan_file as saving
from upgrader.core.explain.node_explanation import Explanation
from upgrader.core.explain.plan_file import SavedForecast, consented_loss
from upgrader.core.forecast.forecast import BatchForecast
from upgrader.core.gpu_stack.drift import NodeDrift, find_drift
from upgrader.core.model.phases import is_final
from upgrader.core.model.strategy import StrategyFacts
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.remaining_work import Rest

Agree = Callable[[SavedForecast], None]
"""Shows the forecast to approve; raises an error if it is not approved."""


class Drift(Struct, frozen=True, kw_only=True):
    """The result of `upgrader drift`."""

    stack: str
    revision: str
    nodes: int
    drift: tuple[NodeDrift, ...]


async def make_forecast(
    context: Context, *, file: Path | None, stack: str | None, changes: Sequence[str], pace: Mapping[str, Any]
) -> SavedForecast:
    """The forecast for the desired state of a stack, at the pace of the options."""
    asked = pace_parser.parse_strategy(pace, context.clock.now())
    wish = await cluster_reading.read_wanted_stack(context, file=file, name=stack, changes=changes)
    target = await cluster_reading.target_of(context, wish.stack)
    snapshot = await cluster_reading.read_snapshot(context, wish.stack, target, method=asked.checkpoint_method)
    strategy = pace_parser.resolve_gang_names(asked, snapshot)
    return cluster_reading.saved_of(
        wish, await cluster_reading.forecast_rest(context, Rest(snapshot=snapshot), target, strategy), strategy
    )


def save_forecast(saved: SavedForecast, path: Path) -> None:
    """Write a forecast to a file.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        path.write_bytes(saving.encode_forecast(saved))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written", details=str(error)) from error


async def apply_forecast(context: Context, path: Path, *, by: str | None, retry: int, agree: Agree) -> str | None:
    """Apply the forecast of a file; returns the name of the plan, None if none is required. `retry` is in seconds.

    The plan is written first and pins its revision, so that it exists before the controller acts on the drift of the
    stack. A new stack must exist before its plan.

    Raises:
        StaleForecastError: the forecast is stale, its deadline has passed, or the stack was edited meanwhile.
    """
    saved = _load_forecast(path)
    name = consent.plan_name(saved)
    wish = DesiredStack(name=saved.stack, spec=saved.spec, live=await context.cluster.get(GPU_STACKS, saved.stack))
    if not wish.is_edited and await _is_started(context, name):
        return name
    now = context.clock.now()
    strategy = pace_parser.renew_strategy(saved.strategy, saved.created_at, now)
    seen = await _foresee_wanted(context, wish, strategy, remainder=saved.forecast.batches)
    fresh = cluster_reading.saved_of(wish, seen, strategy)
    consent.reject_stale_forecast(saved, msgspec.structs.replace(fresh, images=seen.snapshot.images))
    agree(fresh)
    if wish.live is None:
        await consent.write_stack(context, wish)
    needed = consent.needs_plan(fresh)
    if needed:
        body = consent.plan_body(
            context,
            name,
            saved.stack,
            saved.revision,
            strategy,
            _consent_of_file(saved, by),
            consent.checkpoint_spec(strategy, retry),
            made_at=now,
        )
        await consent.create_plan(context, body)
    if wish.live is not None and wish.is_edited:
        await consent.write_stack(context, wish)
    return name if needed else None


def _consent_of_file(saved: SavedForecast, by: str | None) -> ApprovalTerms:
    limits = saved.limits
    expected = limits.max_lost_gpu_hours
    return ApprovalTerms(
        by=by or consent.current_user(),
        max_interruptions=limits.max_interruptions,
        max_lost_gpu_hours=consented_loss(expected) if expected is not None else None,
        expendable=saved.strategy.expendable,
        placement_unguaranteed=limits.placement_unguaranteed,
    )


async def read_drift(context: Context, name: str | None) -> Drift:
    """The drift of a stack."""
    stack = await cluster_reading.stack_named(context, name)
    target = await cluster_reading.target_of(context, stack)
    snapshot = await cluster_reading.read_snapshot(context, stack, target)
    return Drift(
        stack=stack.metadata.name,
        revision=target.revision,
        nodes=len(snapshot.nodes),
        drift=find_drift(snapshot, target),
    )


async def under_way(context: Context, stack: str) -> str:
    """A sentence with the running plan that a new plan waits for; empty if there is none."""
    running = await cluster_reading.plan_under_way(context, stack)
    if running is None:
        return ""
    return (
        f"Plan {running.metadata.name} of stack {stack} is {running.status.phase.value}: a new plan waits until it "
        "has ended. This forecast does not include its effects."
    )


async def explain_subject(context: Context, subject: str) -> list[Explanation]:
    """The state of a node or a job, for each stack that contains it.

    Raises:
        ConfigurationError: no stack selects the node or runs the job.
    """
    explanations: list[Explanation] = []
    for stack in await context.cluster.list(GPU_STACKS):
        running = await cluster_reading.plan_under_way(context, stack.metadata.name)
        if running is not None:
            seen, already = await cluster_reading.foresee_rest(context, stack, running)
        else:
            target = await cluster_reading.target_of(context, stack)
            seen, already = (
                await cluster_reading.forecast_now(context, stack, target, StrategyFacts()),
                frozenset[str](),
            )
        node = explaining.why_node(subject, seen.snapshot, seen.forecast, already=already)
        gangs = [
            gang_explanation.why_gang(name, seen.snapshot, seen.forecast)
            for name in gang_explanation.find_gangs(seen.snapshot, subject)
        ]
        explanations += [explanation for explanation in (node, *gangs) if explanation is not None]
    if not explanations:
        raise ConfigurationError(
            f"node or job {subject} not found on the nodes of any stack",
            resolution="Specify a node, or a job as JOB, NAMESPACE/JOB or NAMESPACE/KIND/JOB; the name of a pod or "
            "of any of its owners is valid too.",
        )
    return explanations


async def _foresee_wanted(
    context: Context, wish: DesiredStack, strategy: StrategyFacts, *, remainder: Sequence[BatchForecast] = ()
) -> ForecastReading:
    stack = wish.stack
    target = await cluster_reading.target_of(context, stack)
    return await cluster_reading.forecast_now(context, stack, target, strategy, remainder=remainder)


def _load_forecast(path: Path) -> SavedForecast:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", details=str(error)) from error
    return saving.decode_forecast(raw, str(path))


async def _is_started(context: Context, name: str) -> bool:
    """Whether an earlier attempt to apply the same forecast created its plan."""
    there = await context.cluster.get(UPGRADE_PLANS, name)
    return there is not None and not is_final(there.status.phase)
