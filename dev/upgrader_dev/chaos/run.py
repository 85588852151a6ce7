"""A chaos run: a fleet with jobs and a plan, a period with faults, one without, and the judgement of the laws."""

import asyncio
import logging
from collections.abc import Callable, Container, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import structlog
from msgspec import Struct

from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.model.phases import PlanPhase, is_final
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.events import LONGEST_DISTURBANCE, Events
from upgrader_dev.chaos.faults import Fault, Rates, draw_rates
from upgrader_dev.chaos.fleets import ChaosFleetSpec, draw_fleet, install_fleet, populate_fleet, put_images
from upgrader_dev.chaos.gangs import serve_gangs
from upgrader_dev.chaos.interruptions import Interruptions
from upgrader_dev.chaos.laws.cluster_state import Violation
from upgrader_dev.chaos.laws.judge import Judge
from upgrader_dev.chaos.ports import CALM, FaultyCluster
from upgrader_dev.chaos.process import Process
from upgrader_dev.chaos.removals import Removals
from upgrader_dev.chaos.rollouts import PLAN, ApplySchedule
from upgrader_dev.chaos.tenants import Tenants
from upgrader_dev.chaos.users import Users
from upgrader_dev.simulated.cluster.rig import Rig

FAULT_SECONDS = 1500
"""Virtual time with faults; after it everything has to end."""
CALM_SECONDS = 1800
ABORT_SECONDS = 6 * 3600
QUIET_SECONDS = 900
"""A plan that has had nothing under way for so long is aborted."""
LONGEST_STRIDE = 30
OCCASIONS = 0.25
"""Factor of the rates of events in each second."""
AFTER_UPGRADE_SECONDS = 60
SETTLED_SECONDS = 60
"""The run ends when everything has been over for so long."""
_ENDED = frozenset(phase.value for phase in PlanPhase if is_final(phase))


class RunOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

    seed: int
    fleet: ChaosFleetSpec
    faults: Rates
    violations: tuple[Violation, ...]
    phase: str
    unknown: tuple[str, ...]
    """Unexpected errors of steps, each once."""
    crashes: int
    writes: int
    seconds: int

    @property
    def failed(self) -> bool:
        """Whether the run broke a law, or a step failed with an unexpected error."""
        return bool(self.violations or self.unknown)

    def __str__(self) -> str:
        """A summary; a failed run has a line for each reason."""
        lines = [f"seed {self.seed}: {self.phase}, {self.writes} writes, {self.crashes} crashes, {self.seconds} s"]
        if self.failed:
            rates = ", ".join(f"{fault.value} {rate:g}" for fault, rate in self.faults.by_fault.items())
            lines += [f"  {self.fleet}", f"  faults: {rates or 'none'}"]
            lines += [f"  step failed for an unknown reason: {error[:300]}" for error in self.unknown[:5]]
            lines += [f"  {violation}" for violation in self.violations]
        return "\n".join(lines)


class ChaosRun:
    """A fleet with faults, its controller and its judge."""

    def __init__(self, seed: int, *, nodes: int = 0, off: Container[Fault] = frozenset()) -> None:
        self.draws = Draws(seed, "run")
        self.cluster = FaultyCluster(self.draws.stream_for("ports"))
        self.rig = Rig(self.cluster)
        self.fleet = draw_fleet(self.draws.stream_for("fleet"), nodes)
        serve_gangs(self.rig, self.fleet.gangs, self.draws.stream_for("responder"))
        self._schedule = ApplySchedule(self.rig, self.fleet.rollouts)
        self.rates = draw_rates(self.draws.stream_for("faults"), off)
        self.process = Process(self.rig, self.cluster, self.draws.stream_for("process"))
        self.judge = Judge(self.cluster.files, lambda: dict(self.rig.fleet.mailbox))
        self.events = Events(self.rig, self.fleet, self.draws.stream_for("events"))
        self._interruptions = Interruptions(
            self.cluster, self.draws.stream_for("interruptions"), self.events.move_node_for_a_while
        )
        tenants = Tenants(self.rig, self.fleet, self.draws.stream_for("tenants"))
        removals = Removals(self.cluster.store, self.draws.stream_for("removals"))
        self.users = Users(self.cluster.store, self.draws.stream_for("people"))
        self._actions = {
            **self.events.actions,
            **tenants.actions,
            Fault.FORCE_DELETED: removals.remove_object,
            Fault.USER_ACTION: self.users.change_plan,
        }
        self._occasions = self.draws.stream_for("occasions")
        self.seconds = 0
        self._stride = 1
        self.cluster.pass_second = self._pass_second
        self._quiet_since = self._over_since = self.now

    async def play(self) -> None:
        """Play the whole run; it ends early when a law is broken."""
        await install_fleet(self.rig, self.fleet, self._schedule)
        populate_fleet(self.rig, self.fleet)
        for _ in range(8):
            self.rig.fleet.tick()
        self.judge.start_judging(self.cluster.store)
        self.judge.stale_state_law.staleness = self.process.staleness
        self.cluster.journal.readers += [self.judge.judge_entry, self._interruptions.read_entry]
        self._schedule.start_rollouts(self.fleet.plan, self.fleet.target_spec(self.rig))
        self._set_faults(self.rates)
        await self.run_until(lambda: self._has_settled() or self._is_waiting(), FAULT_SECONDS)
        self._quiet_since = self._over_since = self.now
        self._set_faults(CALM)
        self.events.end_disturbances()
        self.users.resume_plans()
        put_images(self.rig, self.fleet)
        await self.run_until(lambda: self._has_settled() or self._is_waiting(), CALM_SECONDS)
        self._abort_plans()
        await self.run_until(self._has_settled, ABORT_SECONDS)
        self.judge.judge_end(self.now)
        await self._upgrade_controller()
        await self.process.stop()

    async def run_until(self, done: Callable[[], bool], seconds: int) -> None:
        """Run until a condition holds, a law is broken, or the virtual time is over."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end and not done() and not self.judge.violations:
            await self._run_stride()

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self.cluster.clock.now()

    def plan_phase(self) -> str:
        """The phase of the plan; empty if the plan does not exist."""
        plan = self.cluster.store.find_stored(UPGRADE_PLANS, PLAN)
        return str(plan.value.get("status", {}).get("phase", "Proposed")) if plan is not None else ""

    def _plan_phases(self) -> dict[str, str]:
        """The phase of each plan, including plans that roll others back."""
        plans = (stored.value for stored in self.cluster.store.list_stored(UPGRADE_PLANS))
        return {plan["metadata"]["name"]: plan.get("status", {}).get("phase", "Proposed") for plan in plans}

    def _abort_plans(self) -> None:
        for name, phase in self._plan_phases().items():
            if phase not in _ENDED:
                self.cluster.store.change(UPGRADE_PLANS, name, {"spec": {"state": "Aborted"}})

    async def _run_stride(self) -> None:
        """A second of the simulation with the controller's steps in it; more seconds while nothing changes."""
        before = self.cluster.store.version
        await self.process.run_due_steps()
        self._pass_time()
        self._stride = 1 if self.cluster.store.version != before else min(2 * self._stride, LONGEST_STRIDE)
        self.cluster.clock.advance(self._stride - 1)
        self.seconds += self._stride
        self.judge.judge_deadlines(self.now)

    def _pass_time(self) -> None:
        self._cause_faults()
        self.rig.fleet.tick()
        for tick in self.rig.others:
            tick()

    def _pass_second(self) -> None:
        """A second of the simulation without the controller, which waits for a response."""
        self._stride = 1
        self._pass_time()
        self.seconds += 1
        self.judge.judge_deadlines(self.now)

    def _set_faults(self, rates: Rates) -> None:
        self.cluster.rates = rates
        self.events.fail_node_pods(rates)

    def _cause_faults(self) -> None:
        for fault, act in self._actions.items():
            if self._occasions.is_hit(self.cluster.rates.rate_of(fault) * OCCASIONS * self._stride):
                act()

    def _is_over(self) -> bool:
        quiet = self._schedule.is_complete() and self.judge.is_quiet()
        return quiet and _ENDED.issuperset(self._plan_phases().values()) and not self.judge.has_leftovers()

    def _is_waiting(self) -> bool:
        if not self.judge.is_quiet():
            self._quiet_since = self.now
        return self.now - self._quiet_since > timedelta(seconds=QUIET_SECONDS)

    def _has_settled(self) -> bool:
        if not self._is_over():
            self._over_since = self.now
        return self.now - self._over_since >= timedelta(seconds=SETTLED_SECONDS)

    async def _upgrade_controller(self) -> None:
        # The state of such nodes and the last changes are new to the next controller, so wait until they are handled.
        await self.run_until(lambda: not self.events.disturbances, LONGEST_DISTURBANCE)
        self._over_since = self.now
        await self.run_until(self._has_settled, LONGEST_DISTURBANCE)
        if self.judge.violations or not self.judge.has_no_failures():
            return
        self.judge.new_controller.watching = True
        self.rig.node_image = "registry/upgrader@sha256:" + "1" * 64
        self.process.restart()
        await self.run_until(lambda: False, AFTER_UPGRADE_SECONDS)


class ErrorCollector:
    """Unexpected errors of steps as they are logged: each is a defect of the product."""

    def __init__(self) -> None:
        self.errors: dict[str, None] = {}

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A structlog processor that stores such errors, each once, and drops the log entry."""
        error = event.get("exc_info")
        if isinstance(error, Exception):
            self.errors[f"{event.get('of', '')}: {type(error).__name__}: {error}"] = None
        raise structlog.DropEvent


@contextmanager
def without_logs() -> Iterator[ErrorCollector]:
    """Drop all log entries: writing them would take most of the time of a run."""
    before, unknown = structlog.get_config(), ErrorCollector()
    level = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=level, processors=[unknown])
    try:
        yield unknown
    finally:
        structlog.configure(**before)


def play_run(
    seed: int, *, nodes: int = 0, off: Container[Fault] = frozenset(), world_of: Callable[..., ChaosRun] = ChaosRun
) -> RunOutcome:
    """Play one seed in a world of this class."""
    world = world_of(seed, nodes=nodes, off=off)
    with without_logs() as unknown:
        asyncio.run(world.play())
    return RunOutcome(
        seed=seed,
        fleet=world.fleet,
        faults=world.rates,
        violations=tuple(world.judge.violations),
        phase=world.plan_phase() or "gone",
        unknown=tuple(dict.fromkeys([*unknown.errors, *world.process.unexpected_errors])),
        crashes=world.process.crashes,
        writes=len(world.cluster.writes),
        seconds=world.seconds,
    )
