"""Fleets drawn from a seed: the same specification results in the same fleet on every machine.

1,750 nodes in use run about 244 gangs of 1 to 128 nodes. Jobs have run for about a day in the median, with a long tail,
as training jobs do.
"""

import math
import random

from msgspec import Struct

from upgrader.simulate.fleets.fleet import KERNEL, Fleet, FleetJob, FleetNode

HOUR = 3600

SIZES = {1: 450, 2: 150, 4: 130, 8: 110, 16: 80, 32: 45, 64: 25, 128: 10}
"""The number of nodes of a gang and its frequency, in thousandths: 7.75 nodes in the mean."""

MODELS = (("H100", KERNEL), ("H100", "6.1.0-47-amd64"), ("A100", "6.1.0-47-amd64"))
"""GPU models and kernels; nodes of one class are adjacent, as they were bought together."""

RACK = 16
"""Nodes of a rack."""

LANES = ("scratch", "scratch", "object")
"""Lanes of checkpoints."""


class FleetSpec(Struct, frozen=True, kw_only=True):
    """The parameters of a fleet. Shares are parts of 1."""

    nodes: int
    seed: int
    gpus: int = 8  # per node
    largest: int = 128  # nodes of the largest gang
    idle: float = 0.04  # nodes without a job
    shared: float = 0.06  # gangs that leave half of each of their nodes to another gang
    undeclared: float = 0.05  # jobs without a declared method: they are waited for, so these always end
    ending: float = 0.3  # declared jobs that end within two days and declare their end
    slices: float = 0.3  # jobs with a minimum time slice
    arriving: float = 0.0  # jobs that arrive during the rollout, as a part of the running ones
    horizon: int = 48 * HOUR  # seconds within which ending jobs end

    @property
    def name(self) -> str:
        """Size and seed."""
        return f"{self.nodes}-nodes-seed-{self.seed}"


def make_fleet(spec: FleetSpec) -> Fleet:
    """The fleet of a specification."""
    chance = random.Random(f"fleet {spec.seed} {spec.nodes}")  # noqa: S311 - the same fleet every time, and not a secret
    nodes = tuple(_make_node(spec, number) for number in range(spec.nodes))
    names = [node.name for node in nodes]
    # Placement is mostly in blocks (a scheduler fills racks), with gaps where jobs came and went.
    for _ in range(spec.nodes // 4):
        left, right = chance.randrange(spec.nodes), chance.randrange(spec.nodes)
        names[left], names[right] = names[right], names[left]
    busy = names[: spec.nodes - math.ceil(spec.idle * spec.nodes)]
    jobs: list[FleetJob] = []
    while busy:
        size = min(_draw_size(spec, chance), len(busy))
        members, busy = tuple(busy[:size]), busy[size:]
        parts = 2 if chance.random() < spec.shared else 1
        jobs += [_make_job(spec, chance, len(jobs) + part, members, spec.gpus // parts) for part in range(parts)]
    arrivals = [_make_arrival(spec, chance, number) for number in range(round(spec.arriving * len(jobs)))]
    return Fleet(name=spec.name, nodes=nodes, jobs=(*jobs, *arrivals))


def _make_node(spec: FleetSpec, number: int) -> FleetNode:
    model, kernel = MODELS[len(MODELS) * number // spec.nodes]
    rack = f"rack-{number // RACK:03}"
    return FleetNode(name=f"node-{number:05}", gpus=spec.gpus, model=model, kernel=kernel, rack=rack)


def _draw_size(spec: FleetSpec, chance: random.Random) -> int:
    sizes = [size for size in SIZES if size <= spec.largest]
    return chance.choices(sizes, [SIZES[size] for size in sizes])[0]


def _make_job(spec: FleetSpec, chance: random.Random, number: int, members: tuple[str, ...], gpus: int) -> FleetJob:
    start = -round(min(chance.lognormvariate(math.log(24 * HOUR), 1.0), 30 * 24 * HOUR))
    undeclared = chance.random() < spec.undeclared
    ends = undeclared or chance.random() < spec.ending
    end = chance.randrange(HOUR, spec.horizon) if ends else None
    return FleetJob(
        name=f"train-{number:04}",
        size=len(members),
        nodes=members,
        gpus=gpus,
        start=start,
        end=end,
        declared_end=None if undeclared else end,
        min_runtime=chance.choice((1, 2, 4)) * HOUR if chance.random() < spec.slices else 0,
        method="" if undeclared else "file",
        checkpoint=chance.choice((60, 120, 120, 180, 300)),
        restart=chance.choice((300, 600, 600, 900)),
        period=chance.choice((1800, 3600, 3600, 7200)),
        lane=chance.choice(LANES),
    )


def _make_arrival(spec: FleetSpec, chance: random.Random, number: int) -> FleetJob:
    start = chance.randrange(60, spec.horizon // 2)
    length = round(min(chance.lognormvariate(math.log(8 * HOUR), 1.0), 10 * 24 * HOUR))
    sizes = FleetSpec(nodes=spec.nodes, seed=spec.seed, largest=min(spec.largest, 16))
    return FleetJob(
        name=f"later-{number:04}",
        size=_draw_size(sizes, chance),
        gpus=spec.gpus,
        start=start,
        end=start + length,
        declared_end=start + length,
    )
