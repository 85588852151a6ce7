"""Reads of the cluster for one command: a stack in its current or desired state, and its forecast."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.api import names
from upgrader.api.explicit import explicit_json
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODE_UPGRADES, NODES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import GpuStack, UpgradePlan
from upgrader.cli.shared.stack_edits import Spec, read_manifest, spec_of, with_changes
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.core.explain.plan_file import SavedForecast, limits_of
from upgrader.core.explain.source_revisions import Origin, find_origins
from upgrader.core.forecast.forecast import BatchForecast, Forecast
from upgrader.core.model.fleet import ImageFacts, Snapshot, Target
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.upgrade_plan import plan_machine
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader.reconcile.observe import cluster_snapshot, own_requests, revisions
from upgrader.reconcile.observe.durations import durations_of
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.upgrade_plan.remaining_work import Rest, rest_of


class DesiredStack(Struct, frozen=True, kw_only=True):
    """The desired state of a stack; `live` is its current state, None if the stack is new."""

    name: str
    spec: Spec
    live: GpuStack | None

    @property
    def stack(self) -> GpuStack:
        """The stack in its desired state."""
        meta = self.live.metadata if self.live is not None else ObjectMeta(name=self.name)
        return GpuStack(metadata=meta, spec=spec_of(self.spec, f"stack {self.name}"))

    @property
    def is_edited(self) -> bool:
        """Whether the stack must be written."""
        return self.live is None or explicit_json(self.live.spec) != self.spec


Raise = Callable[[StrategyFacts, Snapshot], StrategyFacts]
"""Extends the limits of a plan beyond its approval."""


class ForecastReading(Struct, frozen=True, kw_only=True):
    """The state of the cluster, and the forecast for it."""

    snapshot: Snapshot
    target: Target
    forecast: Forecast
    origins: tuple[Origin, ...] = ()


async def stack_named(context: Context, name: str | None) -> GpuStack:
    """The stack with a name, or the only stack.

    Raises:
        ConfigurationError: the stack is not found, or a name is required.
    """
    there = await context.cluster.list(GPU_STACKS)
    known = ", ".join(sorted(stack.metadata.name for stack in there)) or "none"
    if name is None and len(there) == 1:
        return there[0]
    if name is None:
        raise ConfigurationError(
            f"a stack must be specified; stacks: {known}", resolution="Specify the stack with --stack."
        )
    match = next((stack for stack in there if stack.metadata.name == name), None)
    if match is None:
        raise ConfigurationError(f"stack {name} not found", details=f"stacks: {known}")
    return match


async def read_wanted_stack(
    context: Context, *, file: Path | None, name: str | None, changes: Sequence[str]
) -> DesiredStack:
    """The stack of a manifest or of the cluster, with the changes of --set.

    Raises:
        ConfigurationError: the stack is not found, or the result is not valid.
    """
    if file is not None:
        named, spec = read_manifest(file)
        if name not in {None, named}:
            raise ConfigurationError(f"{file} is the manifest of stack {named}, but --stack is {name}")
        live = await context.cluster.get(GPU_STACKS, named)
        return DesiredStack(name=named, spec=with_changes(spec, changes), live=live)
    live = await stack_named(context, name)
    return DesiredStack(name=live.metadata.name, spec=with_changes(explicit_json(live.spec), changes), live=live)


def split_targets(
    stacks: Iterable[GpuStack],
) -> tuple[list[tuple[GpuStack, Target]], list[tuple[GpuStack, ConfigurationError]]]:
    """Stacks with their targets, without digests, and stacks whose spec gives no target, each with the reason.

    Commands that read all stacks use this, so that an invalid stack does not hide the others.
    """
    valid, invalid = [], []
    for stack in stacks:
        try:
            valid.append((stack, cluster_snapshot.target_of(stack.spec, stack.metadata.name)))
        except ConfigurationError as error:
            invalid.append((stack, error))
    return valid, invalid


async def target_of(context: Context, stack: GpuStack) -> Target:
    """The target of a stack, with images pinned as in its revision or, if the revision is new, as currently tagged.

    Raises:
        ConfigurationError: an image is not in its registry.
        RegistryError: a registry is not reachable or not readable.
    """
    target = cluster_snapshot.target_of(stack.spec, stack.metadata.name)
    known = await revisions.read_target(context, stack.metadata.name, target.revision)
    if known is not None:
        return known
    try:
        pinned = await revisions.pin_images(context, target)
    except RegistryError as error:
        raise RegistryError(
            error.brief,
            details=error.details,
            resolution="The forecast requires the digests of the images of the stack. Registries that use plain HTTP"
            " must be listed in UPGRADER_INSECURE_REGISTRIES.",
        ) from error
    if isinstance(pinned, str):
        raise ConfigurationError(pinned)
    return pinned


async def read_snapshot(context: Context, stack: GpuStack, target: Target, *, method: str = "") -> Snapshot:
    """The current state of the cluster, for one stack; `method` is the checkpoint method of jobs that declare
    none.
    """
    cluster, name = context.cluster, stack.metadata.name
    # Concurrently, nodes too: a command has no cache, and the lists take most of its time.
    nodes, version, around, former = await asyncio.gather(
        cluster.list(NODES),
        cluster.version(),
        cluster_snapshot.read_around(cluster, context.stack.namespace, context.workloads),
        revisions.former_resources(context, name, target.resource_name),
    )
    seen = msgspec.structs.replace(
        around, nodes={node.metadata.name: node for node in nodes}, api_server_version=version, method=method
    )
    gpus = PoolGpus(resource=target.resource_name, former=former)
    return cluster_snapshot.snapshot_of(seen, stack.spec, gpus, context.clock.now(), stack=name, empties=target)


async def forecast_now(
    context: Context,
    stack: GpuStack,
    target: Target,
    strategy: StrategyFacts,
    *,
    remainder: Sequence[BatchForecast] = (),
    back: bool = False,
) -> ForecastReading:
    """The forecast of a rollout that starts now; `remainder` as for `forecast_rollout`, `back` for a rollback."""
    snapshot = await read_snapshot(context, stack, target, method=strategy.checkpoint_method)
    if back:
        snapshot = msgspec.structs.replace(snapshot, taken_back=stack.status.update_revision or "")
    return await forecast_rest(context, Rest(snapshot=snapshot), target, strategy, remainder=remainder)


async def forecast_rest(
    context: Context, rest: Rest, target: Target, strategy: StrategyFacts, *, remainder: Sequence[BatchForecast] = ()
) -> ForecastReading:
    """The forecast of the rest, for a state that was already read; `remainder` as for `forecast_rollout`."""
    durations = await durations_of(context.cluster, target.stack)
    made = rest.forecast_rest(target, strategy, context.clock.now(), durations, remainder=remainder)
    come_from = await _find_origins(context, rest.snapshot, target, made)
    return ForecastReading(snapshot=rest.snapshot, target=target, forecast=made, origins=come_from)


async def _find_origins(context: Context, snapshot: Snapshot, target: Target, made: Forecast) -> tuple[Origin, ...]:
    drifted = {node.node for node in made.drift if node.drifted}
    nodes = [node for node in snapshot.nodes if node.name in drifted]
    known = {}
    for revision in sorted({node.revision for node in nodes if node.revision}):
        kept = await revisions.read_target(context, target.stack, revision)
        if kept is not None:
            known[revision] = kept
    return find_origins(nodes, known, target)


async def foresee_rest(
    context: Context, stack: GpuStack, plan: UpgradePlan, *, raised: Raise = lambda strategy, _: strategy
) -> tuple[ForecastReading, frozenset[str]]:
    """The forecast of the rest of a plan, and the nodes that it has already started to upgrade.

    `raised` returns the strategy of the plan with another approval.

    Raises:
        ConfigurationError: the revision of the plan is not stored any more.
    """
    target = await revisions.read_target(context, plan.spec.stack, plan.spec.target_revision)
    if target is None:
        raise ConfigurationError(
            f"revision {plan.spec.target_revision} of stack {plan.spec.stack} not found",
            resolution="Check that a controller is running, which stores each revision of a stack.",
        )
    selector = f"{names.LABEL_PLAN}={plan.metadata.name}"
    upgrades = await context.cluster.list(NODE_UPGRADES, labels=selector)
    requests, _ = own_requests.sort_out(
        await context.cluster.list(CHECKPOINT_REQUESTS, labels=selector), plan, upgrades
    )
    snapshot = await read_snapshot(context, stack, target, method=plan.spec.checkpoint.method or "")
    now = context.clock.now()
    rest = rest_of(plan, snapshot, upgrades, requests, now)
    world = await forecast_rest(context, rest, target, raised(strategy_of(plan, now), rest.snapshot))
    return world, rest.already


async def plan_under_way(context: Context, stack: str) -> UpgradePlan | None:
    """The running plan of a stack."""
    plans = await context.cluster.list(UPGRADE_PLANS)
    return next(
        (plan for plan in plans if plan.spec.stack == stack and plan.status.phase in plan_machine.UNDER_WAY), None
    )


def saved_of(wish: DesiredStack, world: ForecastReading, strategy: StrategyFacts) -> SavedForecast:
    """The forecast as it is shown and written to a file."""
    return SavedForecast(
        cluster=world.snapshot.cluster,
        stack=wish.name,
        stack_uid=wish.live.metadata.uid if wish.live is not None else "",
        stack_generation=wish.live.metadata.generation if wish.live is not None else 0,
        spec=wish.spec,
        revision=world.target.revision,
        created_at=world.forecast.made_at,
        strategy=strategy,
        limits=limits_of(world.forecast, strategy),
        images=_used_images(world),
        forecast=world.forecast,
        origins=world.origins,
        steering=world.snapshot.steering,
    )


def _used_images(world: ForecastReading) -> tuple[ImageFacts, ...]:
    """The driver images that the upgrades of a forecast would use, by key."""
    catalogue = Catalogue(world.snapshot.images)
    taken = {node for batch in world.forecast.batches for node in batch.nodes} | set(world.forecast.installs)
    images = (catalogue.required_image(node, world.target) for node in world.snapshot.nodes if node.name in taken)
    return tuple(
        sorted({image.key: image for image in images if image is not None}.values(), key=lambda image: image.key)
    )
