"""The controller in virtual time: core decides; this module schedules the steps and records the results."""

from datetime import datetime, timedelta
from functools import partial

import msgspec

from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GroupOfGang, RequestView
from upgrader.core.constraints.batch import BatchForecast, BatchKind
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.forecast.canaries import node_class
from upgrader.core.forecast.forecast import Forecast, forecast_rollout
from upgrader.core.model.fleet import Gang, Snapshot
from upgrader.core.model.phases import DesiredState, NodePhase, PlanPhase, RequestPhase, is_final, transition_of
from upgrader.core.model.prediction import Durations
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import GroupView, NodeView
from upgrader.core.upgrade_plan import plan_machine
from upgrader.core.upgrade_plan.plan_state import Canaries, NextBatch, PlanDecision, PlanLosses, PlanView, UpgradeFacts
from upgrader.simulate import stack
from upgrader.simulate.controller import steps, turns, views
from upgrader.simulate.controller.actions import ActionExecutor
from upgrader.simulate.controller.objects import Request, SimBatch, SimGroup, Upgrade
from upgrader.simulate.event_queue import UPGRADER
from upgrader.simulate.job import HAS_PODS
from upgrader.simulate.world import SimulatedCluster

ACTIVE, IDLE = 1, 15  # seconds between two steps, while something is under way and otherwise

MARGIN = 300  # seconds beyond the longest checkpoint until a group is released

RETRY = timedelta(seconds=600)  # the time until a released group is tried again

_UNASKED = frozenset({NodePhase.PENDING, NodePhase.PREPARING, NodePhase.PREPARED})


class Controller:
    """One rollout."""

    def __init__(
        self,
        world: SimulatedCluster,
        strategy: StrategyFacts,
        *,
        durations: Durations | None = None,
        tolerated_failures: int = 0,
    ) -> None:
        self.world, self.strategy, self.tolerated, self.durations = world, strategy, tolerated_failures, durations
        self.target = stack.make_target(stack.NEW)
        self.phase, self.reason, self.message = PlanPhase.RUNNING, "", ""
        self.batches: list[SimBatch] = []
        self.upgrades: list[Upgrade] = []
        self.requests: list[Request] = []
        self.first: Forecast | None = None  # before anything was started
        self.replaced = frozenset({stack.make_target(stack.OLD).revision})  # revisions that the plan replaces
        self.soak_until: datetime | None = None
        self.executor = ActionExecutor(world, self._schedule_step)
        self._groups: dict[str, SimGroup] = {}
        self._groups_by_name: dict[str, set[str]] = {}
        self._ended: dict[str, UpgradeFacts] = {}
        self._catalogue = Catalogue(world.images)
        self._remainder: tuple[BatchForecast, ...] = ()
        self._plan_due: set[int] = set()
        world.changed.append(self._handle_change)
        self._schedule_plan_step(ACTIVE)

    # ----------------------------------------------------------------------------------------------- steps

    def _handle_change(self, name: str) -> None:
        for group in tuple(self._groups_by_name.get(name, ())):
            self._schedule_step(group)
        if self.open_batch is None and not is_final(self.phase):
            self._schedule_plan_step(IDLE)

    def _schedule_step(self, name: str, seconds: int = ACTIVE) -> None:
        group = self._groups.get(name)
        when = self.world.now + max(ACTIVE, seconds)
        if group is not None and when not in group.scheduled_steps:
            group.scheduled_steps.add(when)
            self.world.queue.schedule_at(when, partial(self._step_group, group, when), UPGRADER)

    def _schedule_plan_step(self, seconds: int) -> None:
        when = self.world.now + seconds
        if not any(self.world.now < due <= when for due in self._plan_due):
            self._plan_due.add(when)
            self.world.queue.schedule_at(when, partial(self._step_plan, when), UPGRADER)

    @property
    def open_batch(self) -> SimBatch | None:
        """The started batch that has not ended."""
        return self.batches[-1] if self.batches and self.batches[-1].ended_at is None else None

    # ------------------------------------------------------------------------------------------------ plan

    def _step_plan(self, when: int) -> None:
        self._plan_due.discard(when)
        if is_final(self.phase):
            return
        forecast, snapshot, cooling = None, None, frozenset[str]()
        if self.open_batch is None:
            snapshot = self.world.snapshot()
            forecast, cooling = self._forecast(snapshot)
            self.first = self.first or forecast
        decision = plan_machine.decide(self._plan_view(forecast, len(cooling)))
        self.phase, self.reason, self.message = decision.phase, decision.reason, decision.message
        if decision.end_batch and self.batches:
            self.batches[-1].ended_at = self.world.now
            self.soak_until = decision.soak_until or self.soak_until
            self._schedule_plan_step(ACTIVE)
        self._reserve_nodes(forecast, decision)
        if decision.start_batch and forecast is not None and snapshot is not None:
            self._start_batch(forecast.batches[0], snapshot)
        elif forecast is not None:
            self._schedule_retry(forecast, cooling, decision)

    def _reserve_nodes(self, forecast: Forecast | None, decision: PlanDecision) -> None:
        """Reserve nodes that wait for their jobs to complete, by a soft mark, until their upgrade taints them."""
        if forecast is None:
            return
        waiting = {node for completion in forecast.completions for node in completion.nodes}
        starting = set(forecast.batches[0].nodes) if decision.start_batch else set()
        for name, node in self.world.nodes.items():
            node.reserved = name in waiting or (node.reserved and name in starting)

    def _current_strategy(self) -> StrategyFacts:
        """The strategy with the soak: after canaries it delays all other nodes."""
        return msgspec.structs.replace(self.strategy, not_before=self.soak_until, proven=self._proven_classes())

    def _proven_classes(self) -> tuple[str, ...]:
        classes = {batch.number: batch.classes for batch in self.batches if batch.kind is BatchKind.CANARY}
        facts = [fact for fact in self._upgrade_facts() if fact.phase is NodePhase.SUCCEEDED and fact.batch in classes]
        return tuple(sorted({classes[fact.batch][fact.node] for fact in facts}))

    def _schedule_retry(self, forecast: Forecast, cooling: frozenset[str], decision: PlanDecision) -> None:
        """Schedule a step for the time at which a batch can start, if none can start now."""
        if is_final(decision.phase):
            return
        queue = self.world.queue
        times = (*(batch.starts_at for batch in forecast.batches), self.soak_until, self.strategy.deadline)
        starts = [queue.seconds_at(time) for time in times if time is not None]
        ended = [upgrade.ended_at for upgrade in self.upgrades if upgrade.node in cooling]
        starts += [queue.seconds_at(end + RETRY) for end in ended if end is not None]
        refusals = [request.began[RequestPhase.WITHDRAWN] for request in turns.find_refused_requests(self.requests)]
        starts += [queue.seconds_at(refusal + RETRY) for refusal in refusals]
        starts += [queue.seconds_at(at) for gang in self._running_gangs() if (at := gang.earliest_stop) is not None]
        later = [second for second in starts if second > queue.now]
        if later:
            self._schedule_plan_step(min(later) - queue.now)

    def _running_gangs(self) -> list[Gang]:
        begin, skew = self.world.queue.begin, self.world.skew
        return [job.gang_facts(begin, skew) for job in self.world.jobs.values() if job.state in HAS_PODS]

    def _forecast(self, snapshot: Snapshot) -> tuple[Forecast, frozenset[str]]:
        refused = turns.find_refused_requests(self.requests)
        groups = {request.group for request in refused}
        blocked = frozenset(upgrade.uid for upgrade in self.upgrades if upgrade.group in groups)
        now = self.world.queue.time
        settled, cooling = plan_machine.settled_nodes(self._upgrade_facts(), RETRY, now, blocked=blocked)
        forecast = forecast_rollout(
            turns.add_refusals(snapshot, refused, RETRY),
            self.target,
            self._current_strategy(),
            now=now,
            already=settled | cooling,
            stopped_gangs=self._stopped_gangs(),
            remainder=self._remainder,
            durations=self.durations,
        )
        self._remainder = forecast.batches
        return forecast, cooling

    def _stopped_gangs(self) -> frozenset[str]:
        return frozenset(request.gang for request in self.requests if request.stopped_at is not None)

    def _upgrade_facts(self) -> tuple[UpgradeFacts, ...]:
        for upgrade in self.upgrades:
            if upgrade.uid not in self._ended and upgrade.is_over:
                self._ended[upgrade.uid] = upgrade.plan_facts()
        return tuple(self._ended.get(upgrade.uid) or upgrade.plan_facts() for upgrade in self.upgrades)

    def _plan_view(self, forecast: Forecast | None, cooling: int) -> PlanView:
        batch = self.open_batch
        return PlanView(
            name="simulated",
            now=self.world.queue.time,
            reason=self.reason,
            phase=self.phase,
            state=DesiredState.RUNNING,
            deleted=False,
            approved=True,
            target_revision=self.target.revision,
            stack_present=True,
            stack_revision=self.target.revision,
            started_stack_revision=self.target.revision,
            first=None,
            tolerated_failures=self.tolerated,
            max_interruptions=len(self.world.jobs),
            interrupted=len(self._stopped_gangs()),
            batches=len(self.batches),
            open_batch=batch.number if batch is not None else None,
            created=True,
            upgrades=self._upgrade_facts(),
            requests=tuple(request.plan_facts() for request in self.requests),
            next_batch=self._next_batch(forecast),
            waiting=(forecast.summary.blocked if forecast else 0) + cooling,
            waiting_for_completion=sum(len(completion.nodes) for completion in forecast.completions) if forecast else 0,
            canaries=Canaries(
                enabled=self.strategy.canary,
                batches=frozenset(batch.number for batch in self.batches if batch.kind is BatchKind.CANARY),
                soak_seconds=self.strategy.soak_seconds,
                soak_until=self.soak_until,
            ),
            losses=PlanLosses(expected=forecast.prediction.lost_gpu_hours if forecast else 0.0),
            deadline=self.strategy.deadline,
            on_failure=self.strategy.on_failure,
        )

    def _next_batch(self, forecast: Forecast | None) -> NextBatch | None:
        if forecast is None or not forecast.batches:
            return None
        batch = forecast.batches[0]
        gangs = sum(len(group.gangs) for group in batch.groups)
        canary = batch.kind is BatchKind.CANARY
        return NextBatch(interruptions=gangs, starts_at=batch.starts_at, waits_for=batch.waits_for, canary=canary)

    # ----------------------------------------------------------------------------------------------- batch

    def _start_batch(self, planned: BatchForecast, snapshot: Snapshot) -> None:
        number, now = len(self.batches) + 1, self.world.queue.time
        names = {gang for group in planned.groups for gang in group.gangs}
        timeout = self._chain_seconds([gang for gang in snapshot.gangs if gang.name in names])
        seconds = (transition_of(NodePhase.PREPARING).seconds or 0) + timeout + MARGIN
        groups = [
            SimGroup(
                name=f"{group.name}-{number}",
                nodes=group.nodes,
                gangs=group.gangs,
                gpus=group.gpus,
                ask_until=now + timedelta(seconds=seconds),
            )
            for group in planned.groups
        ]
        classes = {node.name: node_class(node) for node in snapshot.nodes if node.name in planned.nodes}
        batch = SimBatch(number=number, kind=planned.kind, groups=groups, started_at=self.world.now, classes=classes)
        self.batches.append(batch)
        for group in groups:
            self._groups[group.name] = group
            upgrades = (self._make_upgrade(group, name) for name in group.nodes)
            group.upgrades = [upgrade for upgrade in upgrades if upgrade is not None]
            self.upgrades += group.upgrades
            for name in group.nodes:
                self._groups_by_name.setdefault(name, set()).add(group.name)
            self._schedule_step(group.name)

    def _chain_seconds(self, gangs: list[Gang]) -> int:
        return turns.longest_chain_seconds(gangs, self.strategy.checkpoint_seconds, self.strategy.lane_width)

    def _make_upgrade(self, group: SimGroup, name: str) -> Upgrade | None:
        node = self.world.nodes.get(name)
        if node is None:
            return None
        image = self._catalogue.required_image(node.node_facts(), self.target)
        if image is None:
            return None
        number = len(self.batches)
        return Upgrade(
            uid=f"{name}-{number}",
            node=name,
            node_uid=node.uid,
            batch=number,
            group=group.name,
            source=(node.driver_key, node.revision),
            target=(image.key, self.target.revision),
            since=self.world.queue.time,
        )

    # --------------------------------------------------------------------------------------------- group

    def _step_group(self, group: SimGroup, when: int) -> None:
        group.scheduled_steps.discard(when)
        if group.is_over:
            return
        members = views.acknowledged_pods(group.requests)
        nodes = [views.node_view(self.world, upgrade, members) for upgrade in group.upgrades]
        expected, refused = self._make_requests(group, nodes)
        members = views.acknowledged_pods(group.requests)
        request_views = [views.request_view(self.world, request) for request in group.requests]
        facts = GroupView(
            nodes=tuple(nodes),
            requests=tuple(
                views.request_facts(self.world, *pair) for pair in zip(group.requests, request_views, strict=True)
            ),
            gangs=expected,
            refused=refused,
        )
        done = False
        for request, request_view in zip(group.requests, request_views, strict=True):
            if not request.is_over:
                done |= self._step_gang(group, request, request_view, request_views, nodes)
        for upgrade, node in zip(group.upgrades, nodes, strict=True):
            if not upgrade.is_over:
                step = upgrade_machine.decide(node, facts, self.world.queue.time)
                done |= self.executor.upgrade(group, upgrade, node, step)
        self._schedule_next(group, done=done)

    def _step_gang(
        self,
        group: SimGroup,
        request: Request,
        request_view: RequestView,
        request_views: list[RequestView],
        nodes: list[NodeView],
    ) -> bool:
        surroundings = GroupOfGang(
            nodes=tuple(view.phase for view in nodes),
            siblings=tuple(view.phase for view in request_views if view is not request_view),
            ask_until=group.ask_until,
            spares=self._has_spares(group, request),
            turns=turns.find_admitted_requests(self.requests, self.strategy.lane_width, self.world.queue.time),
        )
        decision = request_machine.decide(request_view, surroundings, self.world.queue.time)
        where = partial(views.restart_placement, self.world, group, nodes, self.replaced, request)
        return self.executor.request(group, request, request_view, decision, where)

    def _has_spares(self, group: SimGroup, request: Request) -> bool:
        """Whether the gang fits on other nodes, unless another gang restarts there."""
        swapping = all(upgrade.phase in request_machine.SWAPPING for upgrade in group.upgrades)
        if request.phase is not RequestPhase.STOPPED or not swapping:
            return False
        crowded = any(other.phase is RequestPhase.RESTARTING for other in self.requests)
        return not crowded and views.fits_idle_nodes(self.world, request, group)

    def _schedule_next(self, group: SimGroup, *, done: bool) -> None:
        """Schedule the next step of the group."""
        if group.is_over:
            del self._groups[group.name]
            for name in (*group.nodes, *(request.job for request in group.requests)):
                self._groups_by_name[name].discard(group.name)
            batch = self.open_batch
            if batch is not None and all(other.is_over for other in batch.groups):
                self._schedule_plan_step(ACTIVE)
            return
        if done:
            self._schedule_step(group.name)
            return
        later = steps.next_step_second(self.world, group, lanes=bool(self.strategy.lane_width))
        if later is not None:
            self._schedule_step(group.name, later - self.world.now)

    def _make_requests(self, group: SimGroup, nodes: list[NodeView]) -> tuple[int, str]:
        """The number of gangs that must acknowledge, and a blocker; creates requests when all nodes are prepared."""
        phases = {view.phase for view in nodes}
        if phases - _UNASKED:
            return len(group.requests), ""
        expected = max(len(group.gangs), len(group.requests))
        if phases != {NodePhase.PREPARED}:
            return expected, ""
        requested = {request.gang for request in group.requests}
        here = set(group.nodes)
        gangs = [gang for gang in self._running_gangs() if gang.name in group.gangs and gang.nodes & here]
        missing = [gang for gang in gangs if gang.name not in requested]
        if missing:
            strategy, stopped = self._current_strategy(), self._stopped_gangs()
            blocked = views.late_blocker(self.world, self.target, strategy, stopped, missing, group)
            if blocked:
                return expected, blocked
            for gang in missing:
                self._make_request(group, gang, self._chain_seconds(self._lane_rivals(gangs)) + MARGIN)
        return len(gangs), ""

    def _lane_rivals(self, gangs: list[Gang]) -> list[Gang]:
        """Gangs of the batch with the same lanes: each parks until the last has had its turn."""
        batch = self.batches[-1]
        names = {name for group in batch.groups for name in group.gangs}
        lanes = {gang.lane for gang in gangs}
        return [gang for gang in self._running_gangs() if gang.name in names and gang.lane in lanes]

    def _make_request(self, group: SimGroup, gang: Gang, park: int) -> None:
        job = gang.name.rsplit("/", 1)[1]
        now = self.world.queue.time
        request = Request(
            name=f"{job}-{len(self.requests) + 1}",
            gang=gang.name,
            job=job,
            batch=len(self.batches),
            group=group.name,
            request_id=max(int(now.timestamp()), 1 + self.world.jobs[job].request),
            asked_at=now,
            park_seconds=park,
            members=tuple(member.uid for member in gang.members),
            lane=gang.lane,
            timeout_seconds=gang.timeout_seconds or self.strategy.checkpoint_seconds,
            deadline=group.ask_until,
        )
        group.requests.append(request)
        self.requests.append(request)
        self._groups_by_name.setdefault(job, set()).add(group.name)
