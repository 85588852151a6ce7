"""`upgrader simulate` against the real reconcilers: both upgrade the same fleet in the same batches.

The simulation has a controller of its own around the product's decisions, which observes a lighter world; the rig runs
the reconcilers on a fake API server. What takes how long differs: batches and interruptions are compared, not times.
"""

from collections import Counter

import pytest
from msgspec import Struct

from tests.support.examples import PROFILE, Profile
from tests.support.pools import pool
from upgrader.api.resources import PODS
from upgrader.core.model.phases import PlanPhase
from upgrader.core.model.strategy import StrategyFacts
from upgrader.simulate.fleets.fleet import Fleet, FleetJob, FleetNode
from upgrader.simulate.run import Simulation
from upgrader.simulate.settings import SimulatedStrategy, SimulationSettings
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.simulated.cluster.placing import has_owner
from upgrader_dev.simulated.cluster.rig import Rig

GPUS = 8
PLAN = "up"
SEEDS = {Profile.GATE: 2, Profile.FULL: 12, Profile.NIGHTLY: 60}


class Rollout(Struct, frozen=True, kw_only=True):
    """What a rollout came to: nodes and gangs of each batch, and how often each gang was stopped."""

    batches: tuple[tuple[frozenset[str], frozenset[str]], ...]
    interruptions: dict[str, int]
    upgraded: int


def sizes_of(draws: Draws, nodes: int) -> list[int]:
    """Members of gangs, a whole node each; at most one node stays idle."""
    sizes: list[int] = []
    while sum(sizes) < nodes - 1:
        sizes.append(min(draws.draw_number(1, 3), nodes - sum(sizes)))
    return sizes


async def on_the_reconcilers(nodes: int, sizes: list[int], budget: int) -> tuple[Fleet, Rollout]:
    """The fleet as the rig's scheduler placed it, and its rollout."""
    rig = Rig()
    await pool(rig, nodes=nodes, images=("1.0", "2.0"))
    for number, members in enumerate(sizes):
        rig.fleet.add_job(f"g{number}", members=members, gpus=GPUS)
        await rig.run_until(lambda name=f"g{number}": rig.fleet.trainers[name].step > 0)
    fleet = seen(rig, sizes)
    seen_batches: dict[int, tuple[frozenset[str], frozenset[str]]] = {}

    def note() -> None:
        for batch in rig.plan_now(PLAN).status.batches:
            gangs = {gang for group in batch.groups for gang in group.gangs}
            if batch.groups:
                every = frozenset(node for group in batch.groups for node in group.nodes)
                seen_batches[batch.number] = (every, frozenset(gang.rsplit("/", 1)[-1] for gang in gangs))

    rig.apply_plan(PLAN, rig.apply_stack(rig.make_spec("2.0", plugin="2")), strategy={"maxUnavailable": budget})
    rig.others.append(note)
    await rig.run_until(lambda: rig.is_over(PLAN), 6000)
    assert rig.plan_now(PLAN).status.phase is PlanPhase.COMPLETED, rig.describe_state()
    stops = Counter(request.spec.gang.rsplit("/", 1)[-1] for request in rig.requests())
    upgraded = rig.nodes_on(rig.stack_now().status.update_revision or "")
    ordered = tuple(seen_batches[number] for number in sorted(seen_batches))
    return fleet, Rollout(batches=ordered, interruptions=dict(stops), upgraded=upgraded)


def seen(rig: Rig, sizes: list[int]) -> Fleet:
    """The same fleet for the simulation: every gang where the rig has it."""
    where: dict[str, list[str]] = {}
    for pod in rig.cluster.store.copy_all(PODS):
        if has_owner(pod, "Job") and pod["metadata"]["namespace"] == "default":
            where.setdefault(pod["metadata"]["ownerReferences"][0]["name"], []).append(pod["spec"]["nodeName"])
    jobs = tuple(
        FleetJob(name=f"g{number}", size=members, gpus=GPUS, nodes=tuple(sorted(where[f"g{number}"])), start=-60)
        for number, members in enumerate(sizes)
    )
    return Fleet(name="same", nodes=tuple(FleetNode(name=node["metadata"]["name"]) for node in rig.nodes()), jobs=jobs)


def simulated(fleet: Fleet, budget: int) -> Rollout:
    """The rollout of the fleet by `upgrader simulate`."""
    simulation = Simulation(
        fleet,
        SimulatedStrategy.CONTROLLER,
        SimulationSettings(rollout=StrategyFacts(max_unavailable=budget), spread=False),
    )
    result = simulation.run()
    assert simulation.controller is not None
    batches = tuple(
        (
            frozenset(node for group in batch.groups for node in group.nodes),
            frozenset(gang.rsplit("/", 1)[-1] for group in batch.groups for gang in group.gangs),
        )
        for batch in simulation.controller.batches
    )
    stops = {name.rsplit("/", 1)[-1]: count for name, count in simulation.world.ledger.interruptions.items()}
    return Rollout(batches=batches, interruptions=stops, upgraded=result.upgraded)


@pytest.mark.parametrize("seed", range(SEEDS[PROFILE]))
async def test_both_upgrade_a_fleet_in_the_same_batches(seed: int) -> None:
    draws = Draws(seed, "engines")
    nodes = draws.draw_number(3, 8)
    sizes = sizes_of(draws, nodes)
    budget = draws.draw_choice([max(sizes), max(sizes) + 1, nodes]) * GPUS
    fleet, real = await on_the_reconcilers(nodes, sizes, budget)
    assert simulated(fleet, budget) == real
