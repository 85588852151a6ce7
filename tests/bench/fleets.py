"""The fleets that the figures of `make bench` are about: fixed before the planner was tuned, so that it is not tuned to
them. Whether every gang of a fleet fits the budget is found out by the harness, not said here.
"""

from upgrader.simulate.fleets.drawn_fleet import FleetSpec

BUDGET = "5%"

FLEETS = (
    FleetSpec(nodes=50, seed=11, largest=2),
    FleetSpec(nodes=100, seed=12, largest=4),
    FleetSpec(nodes=200, seed=13, largest=8),
    FleetSpec(nodes=200, seed=14, largest=64),
    FleetSpec(nodes=500, seed=15, largest=16),
    FleetSpec(nodes=500, seed=16, largest=128),
    FleetSpec(nodes=1000, seed=17, largest=32),
    FleetSpec(nodes=1000, seed=18, largest=32, shared=0.2, idle=0.1),
    FleetSpec(nodes=1750, seed=19, largest=64),
    FleetSpec(nodes=1750, seed=20, largest=128),
    FleetSpec(nodes=2000, seed=21, largest=64),
    FleetSpec(nodes=2000, seed=22, largest=64, ending=0.0, idle=0.0),
    FleetSpec(nodes=2000, seed=23, largest=64, arriving=0.2),
    FleetSpec(nodes=4000, seed=24, largest=128),
)

RUNS = FleetSpec(nodes=200, seed=31, largest=8, undeclared=0.0)
"""The fleet whose finish is predicted, and then simulated 200 times with other durations. Everybody declares: while
something is held, nobody can say when a rollout is over, and the forecast does not."""

RUN_SEEDS = tuple(range(1000, 1200))
