"""One chaos run: a fleet that trains, a plan over it, faults for a while, calm, and what the laws find."""

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
from upgrader_dev.chaos.events import LONGEST_ODDITY, Events
from upgrader_dev.chaos.faults import Fault, Rates, draw_rates
from upgrader_dev.chaos.fleets import FleetSpec, fleet_of, install_fleet, populate_fleet, put_images
from upgrader_dev.chaos.gangs import serve_gangs
from upgrader_dev.chaos.interruptions import Interruptions
from upgrader_dev.chaos.laws.judge import Judge
from upgrader_dev.chaos.laws.known import Violation
from upgrader_dev.chaos.people import People
from upgrader_dev.chaos.ports import CALM, FaultyCluster
from upgrader_dev.chaos.process import Process
from upgrader_dev.chaos.removals import Removals
from upgrader_dev.chaos.rollouts import PLAN, Orders
from upgrader_dev.chaos.tenants import Tenants
from upgrader_dev.simulated.cluster.rig import Rig

TROUBLE_SECONDS = 1500
"""Of virtual time in which things go wrong; then everything has to come to its end."""
CALM_SECONDS = 1800
ABORT_SECONDS = 6 * 3600
QUIET_SECONDS = 900
"""A plan that has had nothing under way for so long waits for what will not come: somebody aborts it."""
LONGEST_STRIDE = 30
OCCASIONS = 0.25
"""Of the rates, for what happens in the world: so many occasions there are in a second."""
AFTER_UPGRADE_SECONDS = 60
SETTLED_SECONDS = 60
"""Everything is over when it has been so for so long."""
_ENDED = frozenset(phase.value for phase in PlanPhase if is_final(phase))


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a run."""

    seed: int
    fleet: FleetSpec
    faults: Rates
    violations: tuple[Violation, ...]
    phase: str
    unknown: tuple[str, ...]
    """Errors of steps that are none of ours, each once."""
    crashes: int
    writes: int
    seconds: int

    @property
    def failed(self) -> bool:
        """Whether it broke a law, or a step failed for an unknown reason."""
        return bool(self.violations or self.unknown)

    def __str__(self) -> str:
        """For people; a run that failed has a line for each reason."""
        lines = [f"seed {self.seed}: {self.phase}, {self.writes} writes, {self.crashes} crashes, {self.seconds} s"]
        if self.failed:
            rates = ", ".join(f"{fault.value} {rate:g}" for fault, rate in self.faults.of.items())
            lines += [f"  {self.fleet}", f"  faults: {rates or 'none'}"]
            lines += [f"  step failed for an unknown reason: {error[:300]}" for error in self.unknown[:5]]
            lines += [f"  {violation}" for violation in self.violations]
        return "\n".join(lines)


class World:
    """A fleet in trouble, its controller and its judge."""

    def __init__(self, seed: int, *, nodes: int = 0, off: Container[Fault] = frozenset()) -> None:
        self.draws = Draws(seed, "run")
        self.cluster = FaultyCluster(self.draws.of("ports"))
        self.rig = Rig(self.cluster)
        self.fleet = fleet_of(self.draws.of("fleet"), nodes)
        serve_gangs(self.rig, self.fleet.gangs, self.draws.of("responder"))
        self._orders = Orders(self.rig, self.fleet.rollouts)
        self.rates = draw_rates(self.draws.of("faults"), off)
        self.process = Process(self.rig, self.cluster, self.draws.of("process"))
        self.judge = Judge(self.cluster.files, lambda: dict(self.rig.fleet.mailbox))
        self.events = Events(self.rig, self.fleet, self.draws.of("events"))
        self._interruptions = Interruptions(self.cluster, self.draws.of("interruptions"), self.events.stray)
        tenants = Tenants(self.rig, self.fleet, self.draws.of("tenants"))
        removals = Removals(self.cluster.store, self.draws.of("removals"))
        self.people = People(self.cluster.store, self.draws.of("people"))
        self._happening = {
            **self.events.happening,
            **tenants.happening,
            Fault.FORCE_DELETED: removals.remove_something,
            Fault.PERSON: self.people.act,
        }
        self._occasions = self.draws.of("occasions")
        self.seconds = 0
        self._stride = 1
        self.cluster.second = self._second
        self._quiet_since = self._over_since = self.now

    async def play(self) -> None:
        """The whole run; it ends early when a law is broken."""
        await install_fleet(self.rig, self.fleet, self._orders)
        populate_fleet(self.rig, self.fleet)
        for _ in range(8):
            self.rig.fleet.tick()
        self.judge.begin(self.cluster.store)
        self.judge.doubt.in_doubt = self.process.in_doubt
        self.cluster.journal.readers += [self.judge.read, self._interruptions.read]
        self._orders.begin(self.fleet.plan, self.fleet.wanted(self.rig))
        self._trouble(self.rates)
        await self.until(lambda: self._settled() or self._waits(), TROUBLE_SECONDS)
        self._quiet_since = self._over_since = self.now
        self._trouble(CALM)
        self.events.calm()
        self.people.calm()
        put_images(self.rig, self.fleet)
        await self.until(lambda: self._settled() or self._waits(), CALM_SECONDS)
        self._abort()
        await self.until(self._settled, ABORT_SECONDS)
        self.judge.end(self.now)
        await self._upgrade_the_controller()
        await self.process.stop()

    async def until(self, done: Callable[[], bool], seconds: int) -> None:
        """Until something holds, a law is broken, or virtual time is over."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end and not done() and not self.judge.violations:
            await self._moment()

    @property
    def now(self) -> datetime:
        """What the world's clocks show."""
        return self.cluster.clock.now()

    def plan_phase(self) -> str:
        """Where the plan is; empty when it is gone."""
        found = self.cluster.store.stored(UPGRADE_PLANS, PLAN)
        return str(found.value.get("status", {}).get("phase", "Proposed")) if found is not None else ""

    def _phases(self) -> dict[str, str]:
        """Where each plan is, those among them that undo another."""
        plans = (stored.value for stored in self.cluster.store.all_stored(UPGRADE_PLANS))
        return {plan["metadata"]["name"]: plan.get("status", {}).get("phase", "Proposed") for plan in plans}

    def _abort(self) -> None:
        for name, phase in self._phases().items():
            if phase not in _ENDED:
                self.cluster.store.change(UPGRADE_PLANS, name, {"spec": {"state": "Aborted"}})

    async def _moment(self) -> None:
        """A second of the world and the controller's steps in it; longer ones while nothing changes at all."""
        before = self.cluster.store.version
        await self.process.turn()
        self._passes()
        self._stride = 1 if self.cluster.store.version != before else min(2 * self._stride, LONGEST_STRIDE)
        self.cluster.clock.advance(self._stride - 1)
        self.seconds += self._stride
        self.judge.look(self.now)

    def _passes(self) -> None:
        self._happens()
        self.rig.fleet.tick()
        for tick in self.rig.others:
            tick()

    def _second(self) -> None:
        """A second of the world alone: the controller waits for an answer."""
        self._stride = 1
        self._passes()
        self.seconds += 1
        self.judge.look(self.now)

    def _trouble(self, rates: Rates) -> None:
        self.cluster.rates = rates
        self.events.fail_node_pods(rates)

    def _happens(self) -> None:
        for fault, act in self._happening.items():
            if self._occasions.happens(self.cluster.rates.at(fault) * OCCASIONS * self._stride):
                act()

    def _over(self) -> bool:
        quiet = self._orders.given() and self.judge.quiet()
        return quiet and _ENDED.issuperset(self._phases().values()) and not self.judge.left()

    def _waits(self) -> bool:
        if not self.judge.quiet():
            self._quiet_since = self.now
        return self.now - self._quiet_since > timedelta(seconds=QUIET_SECONDS)

    def _settled(self) -> bool:
        if not self._over():
            self._over_since = self.now
        return self.now - self._over_since >= timedelta(seconds=SETTLED_SECONDS)

    async def _upgrade_the_controller(self) -> None:
        # What such a node says in the end is news, as is what changed in the last stride, whoever leads then.
        await self.until(lambda: not self.events.oddities, LONGEST_ODDITY)
        self._over_since = self.now
        await self.until(self._settled, LONGEST_ODDITY)
        if self.judge.violations or not self.judge.well():
            return
        self.judge.new_controller.watching = True
        self.rig.node_image = "registry/upgrader@sha256:" + "1" * 64
        self.process.restart()
        await self.until(lambda: False, AFTER_UPGRADE_SECONDS)


class Unknown:
    """Errors of steps that are none of ours, as they are logged: a defect of the product, whatever came of it."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A processor of structlog that keeps such errors, each once, and logs nothing."""
        error = event.get("exc_info")
        if isinstance(error, Exception):
            self.found[f"{event.get('of', '')}: {type(error).__name__}: {error}"] = None
        raise structlog.DropEvent


@contextmanager
def without_logs() -> Iterator[Unknown]:
    """Nothing is logged: it would be most of what a run does."""
    before, unknown = structlog.get_config(), Unknown()
    level = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=level, processors=[unknown])
    try:
        yield unknown
    finally:
        structlog.configure(**before)


def play_run(
    seed: int, *, nodes: int = 0, off: Container[Fault] = frozenset(), world_of: Callable[..., World] = World
) -> Outcome:
    """Play one seed, in a world of this class."""
    world = world_of(seed, nodes=nodes, off=off)
    with without_logs() as unknown:
        asyncio.run(world.play())
    return Outcome(
        seed=seed,
        fleet=world.fleet,
        faults=world.rates,
        violations=tuple(world.judge.violations),
        phase=world.plan_phase() or "gone",
        unknown=tuple(dict.fromkeys([*unknown.found, *world.process.unknown])),
        crashes=world.process.crashes,
        writes=len(world.cluster.writes),
        seconds=world.seconds,
    )
