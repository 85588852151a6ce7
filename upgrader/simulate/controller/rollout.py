"""The controller over virtual time: core decides; here is when each object is looked at, and what is recorded."""

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
from upgrader.core.upgrade_plan.plan_state import Canaries, Losses, NextBatch, PlanDecision, PlanView, UpgradeFacts
from upgrader.simulate import stack
from upgrader.simulate.agenda import OURS
from upgrader.simulate.controller import asking, looks, views
from upgrader.simulate.controller.acts import Acts
from upgrader.simulate.controller.objects import Batch, Request, Upgrade, UpgradeGroup
from upgrader.simulate.job import HAS_PODS
from upgrader.simulate.world import World

ACTIVE, IDLE = 1, 15
"""Seconds between two looks, while something is under way and while nothing is."""

MARGIN = 300
"""Seconds beyond the longest checkpoint until a group is released."""

RETRY = timedelta(seconds=600)
"""How long a released group is left alone."""

_UNASKED = frozenset({NodePhase.PENDING, NodePhase.PREPARING, NodePhase.PREPARED})


class Controller:
    """One rollout."""

    def __init__(
        self, world: World, strategy: StrategyFacts, *, durations: Durations | None = None, tolerated_failures: int = 0
    ) -> None:
        self.world, self.strategy, self.tolerated = world, strategy, tolerated_failures
        self.target = stack.make_target(stack.NEW)
        self.durations = durations
        self.phase, self.reason, self.message = PlanPhase.RUNNING, "", ""
        self.batches: list[Batch] = []
        self.upgrades: list[Upgrade] = []
        self.requests: list[Request] = []
        self.first: Forecast | None = None  # before anything was started
        self.left = frozenset({stack.make_target(stack.OLD).revision})
        """Revisions that the plan leaves behind."""
        self.soak_until: datetime | None = None
        self.acts = Acts(world, self._look)
        self._groups: dict[str, UpgradeGroup] = {}
        self._at: dict[str, set[str]] = {}
        self._ended: dict[str, UpgradeFacts] = {}
        self._catalogue = Catalogue(world.images)
        self._remainder: tuple[BatchForecast, ...] = ()
        self._plan_due: set[int] = set()
        world.changed.append(self._changed)
        self._look_at_plan(ACTIVE)

    # ----------------------------------------------------------------------------------------------- looks

    def _changed(self, name: str) -> None:
        for group in tuple(self._at.get(name, ())):
            self._look(group)
        if self.open is None and not is_final(self.phase):
            self._look_at_plan(IDLE)

    def _look(self, name: str, seconds: int = ACTIVE) -> None:
        group = self._groups.get(name)
        when = self.world.now + max(ACTIVE, seconds)
        if group is not None and when not in group.looks:
            group.looks.add(when)
            self.world.agenda.at(when, partial(self._group_step, group, when), OURS)

    def _look_at_plan(self, seconds: int) -> None:
        when = self.world.now + seconds
        if not any(self.world.now < due <= when for due in self._plan_due):
            self._plan_due.add(when)
            self.world.agenda.at(when, partial(self._plan_step, when), OURS)

    @property
    def open(self) -> Batch | None:
        """The started batch that has not ended."""
        return self.batches[-1] if self.batches and self.batches[-1].ended_at is None else None

    # ------------------------------------------------------------------------------------------------ plan

    def _plan_step(self, when: int) -> None:
        self._plan_due.discard(when)
        if is_final(self.phase):
            return
        made, snapshot, cooling = None, None, frozenset[str]()
        if self.open is None:
            snapshot = self.world.snapshot()
            made, cooling = self._forecast(snapshot)
            self.first = self.first or made
        decision = plan_machine.decide(self._view(made, len(cooling)))
        self.phase, self.reason, self.message = decision.phase, decision.reason, decision.message
        if decision.end_batch and self.batches:
            self.batches[-1].ended_at = self.world.now
            self.soak_until = decision.soak_until or self.soak_until
            self._look_at_plan(ACTIVE)
        self._reserve(made, decision)
        if decision.start_batch and made is not None and snapshot is not None:
            self._start(made.batches[0], snapshot)
        elif made is not None:
            self._come_back(made, cooling, decision)

    def _reserve(self, made: Forecast | None, decision: PlanDecision) -> None:
        """Nodes that wait for the end of their jobs are kept free, by a soft mark, until their upgrade closes them."""
        if made is None:
            return
        wanted = {node for one in made.completions for node in one.nodes}
        starting = set(made.batches[0].nodes) if decision.start_batch else set()
        for name, node in self.world.nodes.items():
            node.reserved = name in wanted or (node.reserved and name in starting)

    def _pace(self) -> StrategyFacts:
        """Canaries that were upgraded soak before any other node is taken."""
        return msgspec.structs.replace(self.strategy, not_before=self.soak_until, proven=self._proven())

    def _proven(self) -> tuple[str, ...]:
        classes = {one.number: one.classes for one in self.batches if one.kind is BatchKind.CANARY}
        good = [one for one in self._upgrade_facts() if one.phase is NodePhase.SUCCEEDED and one.batch in classes]
        return tuple(sorted({classes[one.batch][one.node] for one in good}))

    def _come_back(self, made: Forecast, cooling: frozenset[str], decision: PlanDecision) -> None:
        """Nothing can be started now: when time alone may change that."""
        if is_final(decision.phase):
            return
        agenda = self.world.agenda
        known = (*(one.starts_at for one in made.batches), self.soak_until, self.strategy.deadline)
        starts = [agenda.seconds(one) for one in known if one is not None]
        ended = [one.ended_at for one in self.upgrades if one.node in cooling and one.ended_at is not None]
        starts += [agenda.seconds(one + RETRY) for one in ended]
        said = [one.began[RequestPhase.WITHDRAWN] for one in asking.refused_requests(self.requests)]
        starts += [agenda.seconds(one + RETRY) for one in said]
        starts += [agenda.seconds(at) for gang in self._gangs() if (at := gang.earliest_stop) is not None]
        later = [one for one in starts if one > agenda.now]
        if later:
            self._look_at_plan(min(later) - agenda.now)

    def _gangs(self) -> list[Gang]:
        begin, skew = self.world.agenda.begin, self.world.skew
        return [job.gang(begin, skew) for job in self.world.jobs.values() if job.life in HAS_PODS]

    def _forecast(self, snapshot: Snapshot) -> tuple[Forecast, frozenset[str]]:
        noes = asking.refused_requests(self.requests)
        blocked = frozenset(one.uid for one in self.upgrades if one.group in {request.group for request in noes})
        settled, cooling = plan_machine.settled_nodes(
            self._upgrade_facts(), RETRY, self.world.agenda.time, blocked=blocked
        )
        made = forecast_rollout(
            asking.with_refusals(snapshot, noes, RETRY),
            self.target,
            self._pace(),
            now=self.world.agenda.time,
            already=settled | cooling,
            stopped_gangs=self._stopped(),
            remainder=self._remainder,
            durations=self.durations,
        )
        self._remainder = made.batches
        return made, cooling

    def _stopped(self) -> frozenset[str]:
        return frozenset(request.gang for request in self.requests if request.stopped_at is not None)

    def _upgrade_facts(self) -> tuple[UpgradeFacts, ...]:
        for one in self.upgrades:
            if one.uid not in self._ended and one.over:
                self._ended[one.uid] = one.facts()
        return tuple(self._ended.get(one.uid) or one.facts() for one in self.upgrades)

    def _view(self, made: Forecast | None, cooling: int) -> PlanView:
        batch = self.open
        return PlanView(
            name="simulated",
            now=self.world.agenda.time,
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
            interrupted=len(self._stopped()),
            batches=len(self.batches),
            open_batch=batch.number if batch is not None else None,
            created=True,
            upgrades=self._upgrade_facts(),
            requests=tuple(one.facts() for one in self.requests),
            next_batch=self._next(made),
            waiting=(made.summary.blocked if made else 0) + cooling,
            waiting_for_completion=sum(len(one.nodes) for one in made.completions) if made else 0,
            canaries=Canaries(
                enabled=self.strategy.canary,
                batches=frozenset(one.number for one in self.batches if one.kind is BatchKind.CANARY),
                soak_seconds=self.strategy.soak_seconds,
                soak_until=self.soak_until,
            ),
            losses=Losses(expected=made.prediction.lost_gpu_hours if made else 0.0),
            deadline=self.strategy.deadline,
            on_failure=self.strategy.on_failure,
        )

    def _next(self, made: Forecast | None) -> NextBatch | None:
        if made is None or not made.batches:
            return None
        batch = made.batches[0]
        gangs = sum(len(one.gangs) for one in batch.groups)
        canary = batch.kind is BatchKind.CANARY
        return NextBatch(interruptions=gangs, starts_at=batch.starts_at, waits_for=batch.waits_for, canary=canary)

    # ----------------------------------------------------------------------------------------------- batch

    def _start(self, made: BatchForecast, snapshot: Snapshot) -> None:
        number, now = len(self.batches) + 1, self.world.agenda.time
        wanted = {gang for group in made.groups for gang in group.gangs}
        timeout = self._chain([gang for gang in snapshot.gangs if gang.name in wanted])
        seconds = (transition_of(NodePhase.PREPARING).seconds or 0) + timeout + MARGIN
        groups = [
            UpgradeGroup(
                name=f"{one.name}-{number}",
                nodes=one.nodes,
                gangs=one.gangs,
                gpus=one.gpus,
                ask_until=now + timedelta(seconds=seconds),
            )
            for one in made.groups
        ]
        classes = {node.name: node_class(node) for node in snapshot.nodes if node.name in made.nodes}
        batch = Batch(number=number, kind=made.kind, groups=groups, started_at=self.world.now, classes=classes)
        self.batches.append(batch)
        for group in groups:
            self._groups[group.name] = group
            group.upgrades = [one for name in group.nodes if (one := self._upgrade(group, name)) is not None]
            self.upgrades += group.upgrades
            for name in group.nodes:
                self._at.setdefault(name, set()).add(group.name)
            self._look(group.name)

    def _chain(self, gangs: list[Gang]) -> int:
        return asking.chain_of(gangs, self.strategy.checkpoint_seconds, self.strategy.lane_width)

    def _upgrade(self, group: UpgradeGroup, name: str) -> Upgrade | None:
        node = self.world.nodes.get(name)
        if node is None:
            return None
        image = self._catalogue.required_image(node.facts(), self.target)
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
            since=self.world.agenda.time,
        )

    # --------------------------------------------------------------------------------------------- group

    def _group_step(self, group: UpgradeGroup, when: int) -> None:
        group.looks.discard(when)
        if group.over:
            return
        members = views.acknowledged_pods(group.requests)
        nodes = [views.node_view(self.world, one, members) for one in group.upgrades]
        expected, refused = self._ask(group, nodes)
        members = views.acknowledged_pods(group.requests)
        request_views = [views.request_view(self.world, one) for one in group.requests]
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
            if not request.over:
                done |= self._step_gang(group, request, request_view, request_views, nodes)
        for one, node in zip(group.upgrades, nodes, strict=True):
            if not one.over:
                step = upgrade_machine.decide(node, facts, self.world.agenda.time)
                done |= self.acts.upgrade(group, one, node, step)
        self._again(group, done=done)

    def _step_gang(
        self,
        group: UpgradeGroup,
        request: Request,
        request_view: RequestView,
        request_views: list[RequestView],
        nodes: list[NodeView],
    ) -> bool:
        around = GroupOfGang(
            nodes=tuple(one.phase for one in nodes),
            siblings=tuple(one.phase for one in request_views if one is not request_view),
            ask_until=group.ask_until,
            spares=self._spares(group, request),
            turns=asking.turns_now(self.requests, self.strategy.lane_width, self.world.agenda.time),
        )
        decision = request_machine.decide(request_view, around, self.world.agenda.time)
        where = partial(views.restart_placement, self.world, group, nodes, self.left, request)
        return self.acts.request(group, request, request_view, decision, where)

    def _spares(self, group: UpgradeGroup, request: Request) -> bool:
        """Whether the gang could go on elsewhere, unless another is on its way to the same nodes."""
        swapping = all(one.phase in request_machine.SWAPPING for one in group.upgrades)
        if request.phase is not RequestPhase.STOPPED or not swapping:
            return False
        crowded = any(one.phase is RequestPhase.RESTARTING for one in self.requests)
        return not crowded and views.fits_idle_nodes(self.world, request, group)

    def _again(self, group: UpgradeGroup, *, done: bool) -> None:
        """When the group is looked at next, if nothing happens to it before."""
        if group.over:
            del self._groups[group.name]
            for name in (*group.nodes, *(request.job for request in group.requests)):
                self._at[name].discard(group.name)
            batch = self.open
            if batch is not None and all(one.over for one in batch.groups):
                self._look_at_plan(ACTIVE)
            return
        if done:
            self._look(group.name)
            return
        later = looks.next_look(self.world, group, lanes=bool(self.strategy.lane_width))
        if later is not None:
            self._look(group.name, later - self.world.now)

    # ------------------------------------------------------------------------------------------------- ask

    def _ask(self, group: UpgradeGroup, nodes: list[NodeView]) -> tuple[int, str]:
        """How many gangs must have acknowledged, and why they cannot be asked; asked when all nodes are prepared."""
        phases = {one.phase for one in nodes}
        if phases - _UNASKED:
            return len(group.requests), ""
        expected = max(len(group.gangs), len(group.requests))
        if phases != {NodePhase.PREPARED}:
            return expected, ""
        asked = {request.gang for request in group.requests}
        here = set(group.nodes)
        gangs = [gang for gang in self._gangs() if gang.name in group.gangs and gang.nodes & here]
        missing = [gang for gang in gangs if gang.name not in asked]
        if missing:
            blocked = views.late_blocker(self.world, self.target, self._pace(), self._stopped(), missing, group)
            if blocked:
                return expected, blocked
            for gang in missing:
                self._begin(group, gang, self._chain(self._rivals(gangs)) + MARGIN)
        return len(gangs), ""

    def _rivals(self, gangs: list[Gang]) -> list[Gang]:
        """Gangs of the batch that write to the same lanes: nobody trains on before the last had its turn."""
        batch = self.batches[-1]
        names = {name for one in batch.groups for name in one.gangs}
        lanes = {gang.lane for gang in gangs}
        return [gang for gang in self._gangs() if gang.name in names and gang.lane in lanes]

    def _begin(self, group: UpgradeGroup, gang: Gang, park: int) -> None:
        job = gang.name.rsplit("/", 1)[1]
        now = self.world.agenda.time
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
        self._at.setdefault(job, set()).add(group.name)
