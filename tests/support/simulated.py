"""Small fleets and rollouts over virtual time, as tests of upgrader.simulate want them."""

from typing import Any

from upgrader.core.model.strategy import StrategyFacts
from upgrader.simulate.controller.objects import Upgrade
from upgrader.simulate.fleets.fleet import EventKind, Fleet, FleetEvent, FleetJob, FleetNode
from upgrader.simulate.run import Simulation
from upgrader.simulate.settings import SimulatedStrategy, SimulationSettings

UPGRADE = (100, 100)
HOUR = 3600


def nodes(*names: str, **facts: Any) -> tuple[FleetNode, ...]:
    return tuple(FleetNode(name=name, **facts) for name in names)


def job(name: str, *at: str, **facts: Any) -> FleetJob:
    """Ten hours old, on these nodes; a checkpoint takes 120 s, a restart 60 s."""
    known = {"size": len(at), "start": -10 * HOUR, "checkpoint": 120, "restart": 60}
    return FleetJob(name=name, nodes=at, **{**known, **facts})


def event(at: int, what: EventKind, subject: str, value: str = "") -> FleetEvent:
    return FleetEvent(at=at, what=what, subject=subject, value=value)


def fleet(*names: str, jobs: tuple[FleetJob, ...] = (), events: tuple[FleetEvent, ...] = ()) -> Fleet:
    return Fleet(name="tiny", nodes=nodes(*names), jobs=jobs, events=events)


def rollout(
    made: Fleet, strategy: SimulatedStrategy = SimulatedStrategy.CONTROLLER, *, budget: int | str = "100%", **facts: Any
) -> Simulation:
    """With every duration at its median; `pace` is more of the strategy."""
    pace = StrategyFacts(max_unavailable=budget, **facts.pop("pace", {}))
    known = {"spread": False, "upgrade": UPGRADE, "rollout": pace}
    return Simulation(made, strategy, SimulationSettings(**{**known, **facts}))


def walk(simulation: Simulation) -> list[tuple[int, str, str]]:
    """To the end: at which second which upgrade or request came into which phase."""
    seen: dict[str, str] = {}
    found = []
    while simulation.step():
        if simulation.controller is None:
            continue
        for one in (*simulation.controller.upgrades, *simulation.controller.requests):
            name = one.uid if isinstance(one, Upgrade) else one.name
            if seen.get(name) != one.phase.value:
                seen[name] = one.phase.value
                found.append((simulation.queue.now, one.node if isinstance(one, Upgrade) else name, one.phase.value))
    return found
