"""What the commands do, without click and without rich: each is one function on a connection."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader.cli.plan import pace_parser
from upgrader.cli.shared import cluster_reading, consent
from upgrader.cli.shared.cluster_reading import Wanted, World
from upgrader.cli.shared.consent import Consent
from upgrader.core.errors import ConfigurationError
from upgrader.core.explain import gang_explanation
from upgrader.core.explain import node_explanation as explaining
from upgrader.core.explain import plan_file as saving
from upgrader.core.explain.node_explanation import Explanation
from upgrader.core.explain.plan_file import SavedForecast, consented_loss
from upgrader.core.forecast.forecast import BatchForecast
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.gpu_stack.drift import drift as find_drift
from upgrader.core.model.phases import ends
from upgrader.core.model.strategy import StrategyFacts
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.remaining_work import Rest

Agree = Callable[[SavedForecast], None]
"""Shows what is to be agreed to; raises where it is not."""


class Drift(Struct, frozen=True, kw_only=True):
    """What `upgrader drift` shows."""

    stack: str
    revision: str
    nodes: int
    drift: tuple[NodeDrift, ...]


async def plan(
    context: Context, *, file: Path | None, stack: str | None, changes: Sequence[str], pace: Mapping[str, Any]
) -> SavedForecast:
    """The forecast for a stack as it should be, at the pace that the options say."""
    asked = pace_parser.strategy(pace, context.clock.now())
    wish = await cluster_reading.wanted(context, file=file, name=stack, changes=changes)
    target = await cluster_reading.target_of(context, wish.stack)
    snapshot = await cluster_reading.look(context, wish.stack, target, method=asked.checkpoint_method)
    strategy = pace_parser.named(asked, snapshot)
    return cluster_reading.saved_of(
        wish, await cluster_reading.predict(context, Rest(snapshot=snapshot), target, strategy), strategy
    )


def keep(saved: SavedForecast, path: Path) -> None:
    """Write a forecast into a file.

    Raises:
        ConfigurationError: it cannot be written there.
    """
    try:
        path.write_bytes(saving.dump(saved))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written", details=str(error)) from error


async def apply(context: Context, path: Path, *, by: str | None, retry: int, agree: Agree) -> str | None:
    """Start what a file says; the plan's name, None where none was needed. `retry` is in seconds.

    The plan is written first and pins its revision, so that whoever acts on drift by themselves finds it there already;
    a stack that is new has to be there before its plan.

    Raises:
        StaleForecastError: the forecast no longer holds, its deadline is over, or the stack was edited meanwhile.
    """
    saved = _load(path)
    name = consent.plan_name(saved)
    wish = Wanted(name=saved.stack, spec=saved.spec, live=await context.cluster.get(GPU_STACKS, saved.stack))
    if not wish.edited and await _started(context, name):
        return name
    now = context.clock.now()
    strategy = pace_parser.renewed(saved.strategy, saved.created_at, now)
    seen = await _foresee(context, wish, strategy, remainder=saved.forecast.batches)
    fresh = cluster_reading.saved_of(wish, seen, strategy)
    consent.check(saved, msgspec.structs.replace(fresh, images=seen.snapshot.images))
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
            _agreed(saved, by),
            consent.checkpoint_spec(strategy, retry),
            made_at=now,
        )
        await consent.create_plan(context, body)
    if wish.live is not None and wish.edited:
        await consent.write_stack(context, wish)
    return name if needed else None


def _agreed(saved: SavedForecast, by: str | None) -> Consent:
    limits = saved.limits
    expected = limits.max_lost_gpu_hours
    return Consent(
        by=by or consent.whoever(),
        max_interruptions=limits.max_interruptions,
        max_lost_gpu_hours=consented_loss(expected) if expected is not None else None,
        expendable=saved.strategy.expendable,
        placement_unguaranteed=limits.placement_unguaranteed,
    )


async def drift(context: Context, name: str | None) -> Drift:
    """Drift of a stack as it is."""
    stack = await cluster_reading.stack_named(context, name)
    target = await cluster_reading.target_of(context, stack)
    snapshot = await cluster_reading.look(context, stack, target)
    return Drift(
        stack=stack.metadata.name,
        revision=target.revision,
        nodes=len(snapshot.nodes),
        drift=find_drift(snapshot, target),
    )


async def under_way(context: Context, stack: str) -> str:
    """What a plan that is made now would wait for, as a sentence; empty where it would wait for nothing."""
    running = await cluster_reading.plan_under_way(context, stack)
    if running is None:
        return ""
    return (
        f"Plan {running.metadata.name} of stack {stack} is {running.status.phase.value}: another one waits until it "
        "has ended, and what is shown here does not know of it."
    )


async def why(context: Context, subject: str) -> list[Explanation]:
    """What becomes of a node or a job, for every stack that knows it.

    Raises:
        ConfigurationError: no stack selects such a node or runs such a job.
    """
    found: list[Explanation] = []
    for stack in await context.cluster.list(GPU_STACKS):
        running = await cluster_reading.plan_under_way(context, stack.metadata.name)
        if running is not None:
            seen, already = await cluster_reading.foresee_rest(context, stack, running)
        else:
            target = await cluster_reading.target_of(context, stack)
            seen, already = await cluster_reading.foresee(context, stack, target, StrategyFacts()), frozenset[str]()
        node = explaining.why_node(subject, seen.snapshot, seen.forecast, already=already)
        gangs = [
            gang_explanation.why_gang(name, seen.snapshot, seen.forecast)
            for name in gang_explanation.find_gangs(seen.snapshot, subject)
        ]
        found += [one for one in (node, *gangs) if one is not None]
    if not found:
        raise ConfigurationError(
            f"no stack selects a node {subject}, and no job of this name runs on one",
            resolution="Jobs are named JOB, NAMESPACE/JOB or NAMESPACE/KIND/JOB, by a pod or by any owner of it.",
        )
    return found


async def _foresee(
    context: Context, wish: Wanted, strategy: StrategyFacts, *, remainder: Sequence[BatchForecast] = ()
) -> World:
    stack = wish.stack
    target = await cluster_reading.target_of(context, stack)
    return await cluster_reading.foresee(context, stack, target, strategy, remainder=remainder)


def _load(path: Path) -> SavedForecast:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", details=str(error)) from error
    return saving.load(raw, str(path))


async def _started(context: Context, name: str) -> bool:
    """Whether an earlier attempt to apply the same forecast made its plan."""
    there = await context.cluster.get(UPGRADE_PLANS, name)
    return there is not None and not ends(there.status.phase)
