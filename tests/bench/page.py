"""docs/contributing/forecast-1750.md: what the forecast of a large fleet looks like, made from a seed.

Run: python -m tests.bench.page > docs/contributing/forecast-1750.md
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from tests.support.facts import NEW, OLD, gang, image, member, node, snapshot, target
from upgrader.core.forecast.canaries import MODEL_LABEL
from upgrader.core.forecast.forecast import Forecast, forecast_rollout
from upgrader.core.model.fleet import Gang, Snapshot
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget
from upgrader.simulate.fleets.drawn_fleet import FleetSpec, make_fleet
from upgrader.simulate.fleets.fleet import Fleet, FleetJob
from upgrader_dev.simulated.cluster.ports import START

SPEC = FleetSpec(nodes=1750, seed=7, undeclared=0.0)
STRATEGY = StrategyFacts(
    max_unavailable="10%",
    topology=(TopologyBudget(key="power", max_unavailable="50%"),),
    canary=True,
    soak_seconds=1800,
    completion_until=START + timedelta(hours=12),
    lane_width=8,
)
POWER = 250
"""Nodes of a power domain."""

SHOWN = 12


def page() -> str:
    """The page, the same for the same code."""
    fleet = make_fleet(SPEC)
    made = forecast_rollout(world_of(fleet), target(), STRATEGY, now=START)
    parts = [_head(fleet, made), _batches(made), _completions(made), _interruptions(made), _costs(made)]
    return "\n\n".join(parts) + "\n"


def world_of(fleet: Fleet) -> Snapshot:
    """The fleet as the forecast sees it at its begin."""
    nodes = [
        node(
            one.name,
            gpus=one.gpus,
            gpus_allocatable=one.gpus,
            kernel=one.kernel,
            driver_key=image(OLD, one.kernel).key,
            labels={MODEL_LABEL: one.model, "rack": one.rack, "power": f"feed-{number // POWER}"},
        )
        for number, one in enumerate(fleet.nodes)
    ]
    kernels = sorted({one.kernel for one in fleet.nodes})
    images = tuple(image(version, kernel) for version in (OLD, NEW) for kernel in kernels)
    return snapshot(nodes, [_gang(job) for job in fleet.jobs if job.running], images=images)


def _gang(job: FleetJob) -> Gang:
    started = START + timedelta(seconds=job.start)
    members = tuple(
        member(f"{job.name}-{at}", on, gpus=job.gpus, started_at=started) for at, on in enumerate(job.nodes)
    )
    return gang(
        job.name,
        [],
        members=members,
        wanted=job.size,
        method=job.method,
        min_runtime_seconds=job.min_runtime,
        ends_at=None if job.declared_end is None else START + timedelta(seconds=job.declared_end),
        lane=job.lane,
        timeout_seconds=job.timeout,
    )


def _head(fleet: Fleet, made: Forecast) -> str:
    jobs = [job for job in fleet.jobs if job.running]
    return f"""# The forecast of 1,750 nodes

This fleet is synthetic: `upgrader.simulate.fleets.drawn_fleet` made it up from seed {SPEC.seed}. The page is made by
`python -m tests.bench.page` and changes only with the code; a test compares both. How long things take is
assumed (the defaults of `core/model/prediction.py`), nothing of it was measured on hardware.

{len(fleet.nodes):,} nodes with {fleet.gpus:,} GPUs run {len(jobs)} gangs of {min(job.size for job in jobs)} to \
{max(job.size for job in jobs)} nodes; all can checkpoint when asked.
All nodes get another driver. At most {STRATEGY.max_unavailable} of the GPUs ({made.allowed:,}) may be out of service \
at once, and half of those
on one power feed ({POWER} nodes); canaries come first and are watched for half an hour; jobs that end within 12 hours
are waited for; {STRATEGY.lane_width} gangs write checkpoints to one storage at once.

In short: {made.summary.nodes:,} nodes in {made.summary.batches} batches, \
{made.summary.waiting_for_completion} more when their \
jobs have ended; {made.summary.interruptions} of {len(jobs)} gangs are
stopped, each once; {made.summary.blocked} nodes are blocked."""


def _batches(made: Forecast) -> str:
    rows = [
        (
            str(batch.number),
            batch.kind.value,
            _clock(batch.starts_at),
            _minutes(batch.seconds),
            str(len(batch.nodes)),
            f"{batch.gpus:,}",
            str(sum(len(one.gangs) for one in batch.groups)),
            batch.waits_for,
        )
        for batch in made.batches
    ]
    head = ("batch", "kind", "starts", "lasts", "nodes", "GPUs out", "gangs stopped", "waits for")
    return "## Batches\n\nTimes are hours and minutes after the start.\n\n" + _table(head, rows)


def _completions(made: Forecast) -> str:
    rows = [(_clock(one.at), str(len(one.nodes)), ", ".join(one.gangs)) for one in made.completions[:SHOWN]]
    rest = len(made.completions) - len(rows)
    more = f"\n\nand {rest} more." if rest > 0 else ""
    said = "Nobody is asked: these nodes are taken when their jobs have ended by themselves."
    return f"## Wait for completion\n\n{said}\n\n{_table(('at', 'nodes', 'gangs'), rows)}{more}"


def _interruptions(made: Forecast) -> str:
    found = sorted(made.prediction.interruptions, key=lambda one: (-one.lost_gpu_hours, one.gang))
    rows = [
        (one.gang, str(one.gpus), _clock(one.asked_at), _minutes(one.seconds), f"{one.lost_gpu_hours:.1f}")
        for one in found[:SHOWN]
    ]
    head = ("gang", "GPUs", "asked", "without progress", "lost GPU-hours")
    return f"## Interruptions\n\nThe {len(rows)} dearest of {len(found)}.\n\n{_table(head, rows)}"


def _costs(made: Forecast) -> str:
    said = made.prediction
    return f"""## Costs

- Lost: {said.lost_gpu_hours:,.0f} GPU-hours; no order of upgrades loses less than {said.lower_bound_gpu_hours:,.0f} \
({said.gap:.3f} times that).
- Finished after {_clock(said.finish_p50)} in one case of two, after {_clock(said.finish_p95)} in 95 of 100."""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _clock(moment: datetime | None) -> str:
    if moment is None:
        return "nobody can say"
    minutes = round((moment - START).total_seconds() / 60)
    return f"{minutes // 60}:{minutes % 60:02}"


def _minutes(seconds: int) -> str:
    return f"{round(seconds / 60)} min"


if __name__ == "__main__":
    sys.stdout.write(page())
