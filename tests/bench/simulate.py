"""Rollouts of whole fleets over virtual time: what they lose, beside the lower bound and beside node-by-node kill.

Everything here is simulated; seeds and fleets are in tests/bench/fleets.py.

Run: python -m tests.bench.simulate [NODES]
"""

import statistics
import sys
import time
from collections.abc import Sequence

import msgspec

from tests.bench.fleets import BUDGET, FLEETS, RUN_SEEDS, RUNS
from tests.bench.report import Report
from tests.support.forecasts import cost
from upgrader.core.constraints.budget import pool_availability
from upgrader.core.constraints.upgrade_groups import build_groups
from upgrader.core.model.strategy import StrategyFacts
from upgrader.simulate.fleets.drawn_fleet import FleetSpec, make_fleet
from upgrader.simulate.history import measure_earlier_rollout
from upgrader.simulate.result import Result
from upgrader.simulate.run import Simulation, simulate_rollout
from upgrader.simulate.settings import SimulatedStrategy, SimulationSettings

SETTINGS = SimulationSettings(rollout=StrategyFacts(max_unavailable=BUDGET))
HISTORY = 999
"""Seed of the rollout before, in which durations were measured."""

OVER_BOUND = 1.05
OVER_KILL = 0.1
"""Asked of a fleet only where its lower bound leaves room for it: node-by-node kill interrupts few gangs of one or two
nodes twice, and what nobody can avoid is more than a tenth of what it loses."""

MEDIANS = msgspec.structs.replace(SETTINGS, spread=False)
IDEAL = msgspec.structs.replace(MEDIANS, label_seconds=0)
"""Node-by-node kill at its best: see upgrader/simulate/baselines.py about its labels."""


def fits(simulation: Simulation) -> bool:
    """Whether every gang of the fleet, with all that shares nodes with it, fits the budget."""
    world = simulation.world
    seen = world.snapshot()
    pool = pool_availability(seen.nodes, BUDGET)
    gangs = {gang.name: gang for gang in seen.gangs}
    units = build_groups(world.nodes, seen.gangs)
    return all(cost(one.nodes, (gangs[name] for name in one.gangs), pool).gpus <= pool.allowed for one in units)


def main(report: Report, fleets: Sequence[FleetSpec] = FLEETS) -> None:
    """Fleet by fleet, then 200 runs of one."""
    worst, upgrader_lost, kill_lost, ideal_lost = 0.0, 0.0, 0.0, 0.0
    for spec in fleets:
        upgrader, kill, fitting = _fleet(report, spec)
        if fitting:
            worst = max(worst, upgrader.over_bound)
            upgrader_lost, kill_lost = upgrader_lost + upgrader.lost_gpu_hours, kill_lost + kill.lost_gpu_hours
            ideal_lost += simulate_rollout(make_fleet(spec), SimulatedStrategy.KILL, IDEAL).lost_gpu_hours
    if upgrader_lost:
        report.add(
            "worst of the fleets that fit: lost GPU-hours over the lower bound",
            worst,
            "ratio",
            goal=f"at most {OVER_BOUND}",
        )
        share = upgrader_lost / kill_lost
        report.add(
            "all fleets that fit: lost GPU-hours over those of kill", share, "ratio", goal=f"at most {OVER_KILL}"
        )
        ideal = "all fleets that fit: lost over those of a kill that writes its labels in no time"
        report.add(ideal, upgrader_lost / ideal_lost, "ratio")
    _runs(report)


def _fleet(report: Report, spec: FleetSpec) -> tuple[Result, Result, bool]:
    fleet = make_fleet(spec)
    fitting = fits(Simulation(fleet, SimulatedStrategy.CONTROLLER, MEDIANS))
    name = f"{fleet.name}{'' if fitting else ' (not every gang fits the budget)'}"
    started = time.perf_counter()
    upgrader = simulate_rollout(fleet, SimulatedStrategy.CONTROLLER, MEDIANS)
    report.add(f"{name}: one rollout", time.perf_counter() - started, "s", seed=spec.seed)
    kill = simulate_rollout(fleet, SimulatedStrategy.KILL, MEDIANS)
    for one in (upgrader, kill):
        _say(
            f"  {one.strategy}: {one.lost_gpu_hours:,.0f} GPU-hours lost, bound {one.lower_bound_gpu_hours:,.0f}, "
            f"{one.interruptions} interruptions (at most {one.most_interruptions}) of {one.jobs} jobs, "
            f"{one.upgraded} nodes upgraded in {(one.seconds or 0) / 3600:.1f} h; {one.ended}"
        )
    goal = f"at most {OVER_BOUND}" if fitting else ""
    report.add(f"{name}: lost over the lower bound", upgrader.over_bound, "ratio", goal=goal, seed=spec.seed)
    report.add(
        f"{name}: most interruptions of a gang", upgrader.most_interruptions, "", goal="at most 1", seed=spec.seed
    )
    bound = upgrader.lower_bound_gpu_hours / kill.lost_gpu_hours
    report.add(f"{name}: the lower bound itself over those of kill", bound, "ratio", seed=spec.seed)
    goal = f"at most {OVER_KILL}" if fitting and bound * OVER_BOUND <= OVER_KILL else ""
    share = upgrader.lost_gpu_hours / kill.lost_gpu_hours
    report.add(f"{name}: lost over those of kill", share, "ratio", goal=goal, seed=spec.seed)
    return upgrader, kill, fitting


def _runs(report: Report) -> None:
    """One forecast against many runs with other durations."""
    fleet = make_fleet(RUNS)
    known = msgspec.structs.replace(
        SETTINGS, durations=measure_earlier_rollout(fleet, msgspec.structs.replace(SETTINGS, seed=HISTORY))
    )
    found = [
        simulate_rollout(fleet, SimulatedStrategy.CONTROLLER, msgspec.structs.replace(known, seed=seed))
        for seed in RUN_SEEDS
    ]
    finish = [one.seconds for one in found if one.seconds is not None]
    median = statistics.median(finish)
    report.add(f"{fleet.name}: runs that came to their end", len(finish) / len(found), "share", seed=RUN_SEEDS[0])
    report.add(f"{fleet.name}: median finish", median / 3600, "h", seed=RUN_SEEDS[0])
    lost = statistics.median(one.over_bound for one in found)
    report.add(f"{fleet.name}: lost over the lower bound, durations drawn, median", lost, "ratio", seed=RUN_SEEDS[0])
    said = found[0].predicted
    if said is None or said.finish_p95 is None:
        _say("the forecast of this fleet said no finish")
        return
    inside = sum(one <= said.finish_p95 for one in finish) / len(found)
    report.add(
        f"{fleet.name}: runs that end by the predicted p95", inside, "share", goal="at least 0.9", seed=RUN_SEEDS[0]
    )
    wide = said.finish_p95 / median
    report.add(f"{fleet.name}: p95 over the median finish", wide, "ratio", goal="at most 1.5", seed=RUN_SEEDS[0])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    wanted = [one for one in FLEETS if str(one.nodes) in sys.argv[1:]]
    main(Report(), wanted or FLEETS)
