"""One rollout over virtual time, from its first second to its end."""

from collections.abc import Iterable
from random import Random

from upgrader.core.model.phases import is_final
from upgrader.simulate import stack
from upgrader.simulate.agenda import Agenda
from upgrader.simulate.baselines import Incumbent
from upgrader.simulate.controller.rollout import Controller
from upgrader.simulate.durations import Chances
from upgrader.simulate.fleets.fleet import Fleet
from upgrader.simulate.result import HOUR, Predicted, Result
from upgrader.simulate.settings import Settings, Strategy
from upgrader.simulate.world import World


class Simulation:
    """A fleet, whoever upgrades it, and the time between them; `step` by `step`, or to the end."""

    def __init__(self, fleet: Fleet, strategy: Strategy, settings: Settings) -> None:
        self.fleet, self.strategy, self.settings = fleet, strategy, settings
        ties = Random(f"ties {settings.seed}") if settings.shuffle else None  # noqa: S311 - no secret
        self.agenda = Agenda(settings.begin, ties)
        self.chances = Chances(settings.seed, settings.upgrade, spread=settings.spread)
        self.world = World(fleet, self.agenda, self.chances, skew=settings.skew, refill=settings.refill)
        rollout = settings.rollout
        self.ours: Controller | None = None
        self.other: Incumbent | None = None
        if strategy is Strategy.OURS:
            self.ours = Controller(
                self.world,
                rollout,
                durations=settings.durations,
                tolerated_failures=settings.tolerated_failures,
            )
        else:
            self.other = Incumbent(
                self.world,
                rollout.max_unavailable,
                kill=strategy is Strategy.KILL,
                write_seconds=settings.label_seconds,
            )

    @property
    def over(self) -> bool:
        """Whether the rollout has ended, and every gang that it stopped trains again."""
        if self.ours is not None:
            return is_final(self.ours.phase)
        return self.other is not None and self.other.finished_at is not None and not self.world.stalled

    def step(self) -> bool:
        """The next thing that happens; False when the rollout is over, or nothing can happen any more."""
        return not self.over and self.agenda.step(self.settings.horizon)

    def run(self) -> Result:
        """To the end."""
        while self.step():
            pass
        return self.result()

    def result(self) -> Result:
        """What it came to until now."""
        world, ledger, now = self.world, self.world.ledger, self.agenda.now
        revision = stack.make_target(stack.NEW).revision
        upgraded = [name for name, node in world.nodes.items() if node.revision == revision]
        sizes = {node.name: node.gpus for node in self.fleet.nodes}
        sizes |= {name: node.spec.gpus for name, node in world.nodes.items()}
        upgrades, gangs = ledger.of_nodes(sizes, now) / HOUR, ledger.of_gangs(now) / HOUR
        thrown, idle = ledger.thrown_away / HOUR, ledger.idle / HOUR
        return Result(
            fleet=self.fleet.name,
            strategy=self.strategy.value,
            seed=self.settings.seed,
            nodes=len(self.fleet.nodes),
            gpus=self.fleet.gpus,
            jobs=sum(job.running for job in self.fleet.jobs),
            upgraded=len(upgraded),
            seconds=now if self.over and len(upgraded) == len(world.nodes) else None,
            ended=self._ended(),
            interruptions=ledger.interruptions.total(),
            gangs_interrupted=len(ledger.interruptions),
            most_interruptions=max(ledger.interruptions.values(), default=0),
            lost_gpu_hours=upgrades + gangs + thrown + idle,
            upgrades_gpu_hours=upgrades,
            gangs_gpu_hours=gangs,
            thrown_away_gpu_hours=thrown,
            idle_gpu_hours=idle,
            lower_bound_gpu_hours=self._bound(upgraded, sizes),
            left=len(world.nodes) - len(upgraded),
            batches=len(self.ours.batches) if self.ours is not None else 0,
            predicted=self._predicted(),
        )

    def _bound(self, upgraded: Iterable[str], sizes: dict[str, int]) -> float:
        """What no order of upgrades goes below: all upgrades, and one checkpoint and restart for each gang
        that was stopped and that would not have ended by itself before `completion_until`.
        """
        upgrades = sum(sizes[name] * self.chances.upgrade(name) for name in upgraded)
        jobs = [self.world.jobs[name] for name in self.world.ledger.interruptions]
        gangs = sum(
            job.gpus * (self.chances.checkpoint(job.spec, 1) + self.chances.restart(job.spec, 2))
            for job in jobs
            if not self._ends_in_time(job.spec.declared_end)
        )
        return (upgrades + gangs) / HOUR

    def _ends_in_time(self, end: int | None) -> bool:
        until = self.settings.rollout.completion_until
        return until is not None and end is not None and self.agenda.moment(end) <= until

    def _ended(self) -> str:
        if self.ours is not None:
            return f"{self.ours.phase}: {self.ours.message}"
        if self.over:
            return "every node is upgraded and every job trains"
        return "waiting for jobs that do not end" if self.strategy is Strategy.WAIT else "jobs find no place"

    def _predicted(self) -> Predicted | None:
        if self.ours is None or self.ours.first is None:
            return None
        made = self.ours.first
        said, seconds = made.prediction, self.agenda.seconds
        return Predicted(
            batches=made.summary.batches,
            interruptions=made.summary.interruptions,
            lost_gpu_hours=said.lost_gpu_hours,
            lower_bound_gpu_hours=said.lower_bound_gpu_hours,
            finish_p50=seconds(said.finish_p50) if said.finish_p50 is not None else None,
            finish_p95=seconds(said.finish_p95) if said.finish_p95 is not None else None,
        )


def simulate_rollout(fleet: Fleet, strategy: Strategy, settings: Settings) -> Result:
    """One rollout of a fleet from its begin to its end, or to the horizon.

    Raises:
        ConfigurationError: the budget is neither a number of GPUs nor a percentage.
    """
    return Simulation(fleet, strategy, settings).run()
