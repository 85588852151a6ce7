"""One step of an UpgradePlan: read, decide (core.rollout), record a batch before it exists, drive what is under way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import BatchStatus, CheckpointRequest, ClosureStatus, GpuStack, NodeUpgrade, UpgradePlan
from upgrader.core import rollout
from upgrader.core.errors import REFUSED, ConfigurationError, ThrottledError
from upgrader.core.fleet import Snapshot, Target
from upgrader.core.forecast import Forecast
from upgrader.core.holds import World
from upgrader.core.phases import NodePhase, PlanPhase, RequestPhase, ends
from upgrader.core.prediction import Durations
from upgrader.core.rollout import PlanDecision
from upgrader.core.strategy import StrategyFacts
from upgrader.reconcile import (
    asking,
    batches,
    closures,
    ended_batches,
    finalizers,
    forced,
    harvest,
    leftovers,
    observe,
    opening,
    own_requests,
    plan_status,
    plan_view,
    pruning,
    rollbacks,
)
from upgrader.reconcile.context import Context, anew, record
from upgrader.reconcile.durations import Past, past_of, seen
from upgrader.reconcile.listed_nodes import list_nodes
from upgrader.reconcile.orders import LABEL_BATCH
from upgrader.reconcile.owners import read_owner
from upgrader.reconcile.rest import rest_of
from upgrader.reconcile.revisions import former_resources, read_target
from upgrader.reconcile.strategies import strategy_of
from upgrader.reconcile.visits import forget
from upgrader.telemetry import metrics

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Read:
    """Everything that one step of a plan looked at."""

    plan: UpgradePlan
    stack: GpuStack | None
    target: Target | None
    visits: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest]
    others: Sequence[UpgradePlan]
    ignored: Sequence[CheckpointRequest] = ()
    """Requests with the plan's label that it did not make; never driven."""
    kept: frozenset[str] = frozenset()
    """Revisions that other plans of the stack wait to go to, and that exist; read while this one waits too."""
    snapshot: Snapshot | None = None
    forecast: Forecast | None = None
    problem: str = ""
    """Why no forecast can be made, where a person has to correct the plan."""
    cooling: frozenset[str] = frozenset()
    harvesting: frozenset[str] = frozenset()
    """Nodes that carry, or are about to carry, the mark of waiting for their jobs' end."""

    @property
    def open_batch(self) -> BatchStatus | None:
        """The started batch that has not ended."""
        return next((one for one in self.plan.status.batches if one.ended_at is None), None)

    @cached_property
    def world(self) -> World | None:
        """What was read, for the rules: once for all closures of a batch."""
        return opening.world_of(self)


async def step(context: Context, name: str) -> float | None:
    """One step of the plan; seconds until the next one, None when there is nothing left to do.

    Raises:
        ClusterError: the API server refused or did not answer; nothing is lost, the step is made again.
    """
    plan = await context.cluster.get(UPGRADE_PLANS, name)
    if plan is None:
        return await _without_plan(context, name)
    over = ends(plan.status.phase)
    if names.FINALIZER not in plan.metadata.finalizers and plan.metadata.deletion_timestamp is None and not over:
        plan = await finalizers.put(context, UPGRADE_PLANS, plan.metadata)
    read = await _read(context, plan)
    if over:
        return await _finish(context, read)
    decision = rollout.decide(plan_view.view(read, context.clock.now()))
    if decision.start_batch:
        # The budget is every plan's: another may have started a batch since this one looked. It looks again, and nobody
        # else starts one before this one is written.
        async with context.gates.batches:
            read = await _read(await list_nodes(context), plan)
            decision = rollout.decide(plan_view.view(read, context.clock.now()))
            read = await _write(context, read, decision)
    else:
        read = await _write(context, read, decision)
    await _let_go_of(context, read)
    await pruning.prune(context, read)
    if read.open_batch is not None:
        await _drive(context, read, undo=decision.undo)
    left = await _take_back(context, read)
    if read.open_batch is not None or left or ends(read.plan.status.phase):
        return context.active_seconds
    return (
        context.idle_seconds
        if decision.phase is read.plan.status.phase and not decision.end_batch
        else context.active_seconds
    )


async def _without_plan(context: Context, name: str) -> float | None:
    """A plan that is gone, however it went: what it has begun is taken back."""
    selector = f"{names.LABEL_PLAN}={name}"
    visits = await context.cluster.list(NODE_UPGRADES, labels=selector)
    listed = await context.cluster.list(CHECKPOINT_REQUESTS, labels=selector)
    requests, others = own_requests.sort_out(listed, None, visits)
    await own_requests.release(context, others)
    if await leftovers.take_back(context, visits, requests):
        return context.active_seconds
    await forget(context, visits)
    await leftovers.release(context, requests)
    return None


async def _take_back(context: Context, read: Read) -> bool:
    """What the plan's started batch does not cover; whether there is any."""
    batch = read.open_batch
    covered = {one.name for one in batch.closures} if batch is not None else set()
    return await leftovers.take_back(context, read.visits, read.requests, covered)


async def _write(context: Context, read: Read, decision: PlanDecision) -> Read:
    """What was decided, as the plan's status (a batch that is started is part of it); then the marks that it names."""
    ripe = harvest.wanted(read, decision)
    stuck = await harvest.let_go(context, read.plan.metadata.name, set(read.plan.status.harvesting) - ripe)
    read = replace(read, harvesting=ripe | stuck)
    write = _start if decision.start_batch and read.forecast is not None else plan_status.write
    plan = await write(context, read, decision)
    await harvest.mark(context, plan.metadata.name, ripe & harvest.ripening(read))
    return replace(read, plan=plan)


async def _read(context: Context, plan: UpgradePlan) -> Read:
    past = await _past(context, plan)
    others = [one for one in await context.cluster.list(UPGRADE_PLANS) if one.metadata.name != plan.metadata.name]
    waited_for = {
        one.spec.target_revision
        for one in others
        if plan.status.phase is one.status.phase is PlanPhase.PROPOSED and one.spec.stack == plan.spec.stack
    }
    visits = [one for one in past.visits if one.metadata.labels.get(names.LABEL_PLAN) == plan.metadata.name]
    labelled = [one for one in past.requests if one.metadata.labels.get(names.LABEL_PLAN) == plan.metadata.name]
    requests, ignored = own_requests.sort_out(labelled, plan, visits)
    read = Read(
        plan=plan,
        stack=await context.cluster.get(GPU_STACKS, plan.spec.stack),
        target=await read_target(context, plan.spec.stack, plan.spec.target_revision),
        visits=visits,
        requests=requests,
        ignored=ignored,
        others=others,
        kept=frozenset([one for one in waited_for if await read_target(context, plan.spec.stack, one) is not None]),
    )
    if read.stack is None or read.target is None or ends(plan.status.phase) or not _needs_snapshot(read):
        return read
    try:
        snapshot = await observe.read_snapshot(
            anew(context) if _decides(read) else context,
            read.stack,
            read.target,
            former=await former_resources(context, plan.spec.stack, read.target.resource_name),
            method=plan.spec.checkpoint.method or "",
            reboots=True,
        )
    except REFUSED as error:
        if read.open_batch is None:
            raise
        # What was begun goes on: gangs that we stopped must not wait for a list that somebody else keeps from us.
        log.warning("the world cannot be read", because=error.brief, details=error.details)
        return read
    if snapshot is None or read.open_batch is not None:
        return replace(read, snapshot=snapshot)
    return _forecast(context, replace(read, snapshot=snapshot), seen(past.visits, past.requests))


async def _past(context: Context, plan: UpgradePlan) -> Past:
    """The plan's own visits and conversations; before a forecast also those that it learns durations from."""
    waits = not ends(plan.status.phase) and all(one.ended_at is not None for one in plan.status.batches)
    return await past_of(context.cluster, plan.spec.stack, plan="" if waits else plan.metadata.name)


def _needs_snapshot(read: Read) -> bool:
    """Reading all pods is spared while a batch only waits: forecasting, making visits, asking gangs and closing do.

    So does the end of an abort: no gang that the plan stopped is to be stopped then.
    """
    batch = read.open_batch
    if batch is None:
        return True
    if read.plan.status.phase is PlanPhase.ABORTING and _all_ended(read):
        return True
    phases = [one.status.phase for one in _of_batch(read.visits, batch.number)]
    waits = {NodePhase.PREPARED, NodePhase.CLOSING} if read.plan.spec.checkpoint.wait_for else {NodePhase.PREPARED}
    return len(phases) < sum(len(one.nodes) for one in batch.closures) or bool(waits.intersection(phases))


def _decides(read: Read) -> bool:
    """Whether pods as they are now decide: which visits are made, who is asked, whose pods are waited for, the end."""
    batch, status = read.open_batch, read.plan.status
    if batch is None:  # before a batch is written all is read anew anyway
        return status.phase is PlanPhase.ABORTING or status.reason == "BatchEnded"
    if read.plan.spec.checkpoint.wait_for:
        return True
    there = {(one.spec.closure, one.spec.node.name) for one in _of_batch(read.visits, batch.number)}
    asked = {(one.spec.closure, one.spec.gang) for one in _of_batch(read.requests, batch.number)}
    return any(
        {(one.name, node) for node in one.nodes} - there or {(one.name, gang) for gang in one.gangs} - asked
        for one in batch.closures
    )


def _all_ended(read: Read) -> bool:
    return all(ends(one.status.phase) for one in read.visits) and all(ends(one.status.phase) for one in read.requests)


def _forecast(context: Context, read: Read, durations: Durations) -> Read:
    plan, snapshot, target = read.plan, read.snapshot, read.target
    if snapshot is None or target is None:
        return read
    now = context.clock.now()
    rest = rest_of(plan, snapshot, read.visits, read.requests, now)
    before = context.orders.get(plan.metadata.name, ())
    try:
        made = rest.foresee(target, strategy_of(plan, now), now, durations, remainder=before)
    except ConfigurationError as error:  # a time zone that there is not, windows that never open
        return replace(read, problem=str(error), cooling=rest.cooling)
    context.orders[plan.metadata.name] = made.batches
    return replace(read, forecast=made, cooling=rest.cooling)


async def _start(context: Context, read: Read, decision: PlanDecision) -> UpgradePlan:
    """The batch is written first; its visits are made in the drive that follows, or by whoever comes after a crash."""
    plan, made, snapshot = read.plan, read.forecast, read.snapshot
    if made is None or snapshot is None:
        raise AssertionError("a batch is started only from a forecast")
    number = ended_batches.started(plan) + 1
    batch = batches.batch_status(context, plan, number, made.batches[0], snapshot)
    left = {node.revision for node in snapshot.nodes if node.revision and node.revision != plan.spec.target_revision}
    status = plan_status.render(context, read, decision) | {
        "batches": [msgspec.to_builtins(one) for one in (*plan.status.batches, batch)],
        "revisionsLeft": sorted(left | set(plan.status.revisions_left)),
    }
    written: UpgradePlan = await record(
        context, UPGRADE_PLANS, plan.metadata, status, left=plan.status.phase, entered=decision.phase
    )
    log.info("batch started", plan=plan.metadata.name, batch=number, closures=len(batch.closures))
    return written


async def _drive(context: Context, read: Read, *, undo: bool) -> None:
    """Make what is missing of the open batch, then one step of each of its closures."""
    batch, plan = read.open_batch, read.plan
    if batch is None:
        return
    visits = _of_batch(read.visits, batch.number)
    if not undo and read.stack is not None and read.target is not None and read.snapshot is not None:
        await batches.create_visits(context, plan, read.stack, read.target, batch, read.snapshot, visits)
        context.crash.reached(("UpgradePlan", PlanPhase.RUNNING.value, "after-act"))
        visits = _of_batch(
            await context.cluster.list(NODE_UPGRADES, labels=f"{names.LABEL_PLAN}={plan.metadata.name}"), batch.number
        )
    requests = _of_batch(read.requests, batch.number)
    crowded = any(one.status.phase is RequestPhase.RESTARTING for one in read.requests)
    strategy = strategy_of(plan, context.clock.now())
    turns = await asking.turns_now(context, strategy.lane_width)
    for closure in batch.closures:
        mine = [one for one in visits if one.spec.closure == closure.name]
        talks = [one for one in requests if one.spec.closure == closure.name]
        gangs, refused = await _ask(context, read, batch, closure, mine, talks, undo=undo)
        under_way = closures.Closure(
            name=closure.name,
            resource=read.target.resource_name if read.target is not None else "",
            visits=mine,
            requests=talks,
            gangs=gangs,
            undo=undo,
            ask_until=batch.ask_until,
            revisions_left=plan.status.revisions_left,
            refused=refused,
            crowded=crowded,
            expendable=frozenset(strategy.expendable),
            turns=turns,
            lane_width=strategy.lane_width,
            expended=_expended(closure, strategy),
            waited_for=opening.waited_pods(read, mine),
        )
        if under_way.open:
            crowded |= await closures.step(context, under_way)


def _expended(closure: ClosureStatus, strategy: StrategyFacts) -> frozenset[str]:
    """Uids of pods that are evicted for good; only while the approval still names their gang."""
    return frozenset(uid for gang, uids in closure.expended.items() if gang in strategy.expendable for uid in uids)


async def _ask(
    context: Context,
    read: Read,
    batch: BatchStatus,
    closure: ClosureStatus,
    visits: Sequence[NodeUpgrade],
    talks: Sequence[CheckpointRequest],
    *,
    undo: bool,
) -> tuple[int, str]:
    """How many gangs must have acknowledged before the closure goes on, and why they cannot be asked.

    They are asked when all nodes are prepared, and only if nothing holds them by then.
    """
    phases = {one.status.phase for one in visits}
    if undo or phases - _UNASKED:
        return len(talks), ""
    expected = max(len(closure.gangs), len(talks))
    if phases != {NodePhase.PREPARED} or read.snapshot is None:
        return expected, ""
    held = opening.held(read, closure, talks)
    if held:
        return expected, held
    try:
        return await batches.create_requests(
            context, read.plan, batch, closure, read.snapshot, talks, read.requests
        ), ""
    except ThrottledError:
        raise
    except REFUSED as error:
        if not error.refused:
            log.info("not asked yet", closure=closure.name, because=error.brief)  # doubt holds; askUntil bounds it
            return expected, ""
        log.warning("not asked", closure=closure.name, because=error.brief, details=error.details)
        return expected, str(error)


_UNASKED = frozenset({NodePhase.PENDING, NodePhase.PREPARING, NodePhase.PREPARED})


def _of_batch(objects: Sequence[Any], number: int) -> list[Any]:
    return [one for one in objects if one.metadata.labels.get(LABEL_BATCH) == str(number)]


async def _let_go_of(context: Context, read: Read) -> None:
    """Objects that somebody deleted and that nothing depends on: ended visits of ended batches, talks without a job."""
    open_batch = read.open_batch.number if read.open_batch is not None else None
    past = [one for one in read.visits if one.metadata.labels.get(LABEL_BATCH) != str(open_batch)]
    await forced.give_back(context, past)
    await forget(context, past)
    await own_requests.release(context, read.ignored)
    for request in read.requests:
        if ends(request.status.phase) and request.metadata.deletion_timestamp is not None:
            owner = await read_owner(context, request.spec.owner, request.metadata.namespace)
            if owner.body is None and not owner.unread and names.FINALIZER in request.metadata.finalizers:
                await finalizers.take(context, CHECKPOINT_REQUESTS, request.metadata)


async def _finish(context: Context, read: Read) -> float | None:
    """A plan that ended keeps its finalizer only while something of it is not over."""
    plan = read.plan
    if await _take_back(context, read):
        return context.active_seconds
    context.orders.pop(plan.metadata.name, None)
    metrics.show_holds(plan.metadata.name, {})
    await forced.give_back(context, read.visits)
    await forget(context, read.visits)
    if plan.status.harvesting:
        stuck = await harvest.let_go(context, plan.metadata.name, plan.status.harvesting)
        plan = await record(context, UPGRADE_PLANS, plan.metadata, {"harvesting": sorted(stuck)})
        if stuck:
            return context.active_seconds
    await leftovers.release(context, read.requests)
    await own_requests.release(context, read.ignored)
    if names.FINALIZER in plan.metadata.finalizers:
        plan = await finalizers.take(context, UPGRADE_PLANS, plan.metadata)
    if rollbacks.wanted(plan):
        await rollbacks.ensure(context, read, plan)
    return None
