"""One rollout in virtual time, from its start to its end."""

from collections.abc import Iterable
from random import Random

from upgrader.core.model.phases import is_final
from upgrader.simulate import stack
from upgrader.simulate.baselines import BaselineUpgrader
from upgrader.simulate.controller.rollout import Controller
from upgrader.simulate.durations import DurationSampler
from upgrader.simulate.event_queue import EventQueue
from upgrader.simulate.fleets.fleet import Fleet
from upgrader.simulate.result import HOUR, InitialForecast, Result
from upgrader.simulate.settings import SimulatedStrategy, SimulationSettings
from upgrader.simulate.world import SimulatedCluster


class Simulation:
    """A fleet, its upgrader, and the virtual time; it runs step by step, or to the end."""

    def __init__(self, fleet: Fleet, strategy: SimulatedStrategy, settings: SimulationSettings) -> None:
        self.fleet, self.strategy, self.settings = fleet, strategy, settings
        ties = Random(f"ties {settings.seed}") if settings.shuffle else None  # noqa: S311 - not a secret
        self.queue = EventQueue(settings.begin, ties)
        self.sampler = DurationSampler(settings.seed, settings.upgrade, spread=settings.spread)
        self.world = SimulatedCluster(fleet, self.queue, self.sampler, skew=settings.skew, refill=settings.refill)
        rollout = settings.rollout
        self.controller: Controller | None = None
        self.baseline: BaselineUpgrader | None = None
        if strategy is SimulatedStrategy.CONTROLLER:
            self.controller = Controller(
                self.world,
                rollout,
                durations=settings.durations,
                tolerated_failures=settings.tolerated_failures,
            )
        else:
            self.baseline = BaselineUpgrader(
                self.world,
                rollout.max_unavailable,
                kill=strategy is SimulatedStrategy.KILL,
                write_seconds=settings.label_seconds,
            )

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended, and every gang that it stopped trains again."""
        if self.controller is not None:
            return is_final(self.controller.phase)
        return self.baseline is not None and self.baseline.finished_at is not None and not self.world.stalled

    def step(self) -> bool:
        """Run the next action; False if the rollout is over, or no action is left."""
        return not self.is_over and self.queue.run_next(self.settings.horizon)

    def run(self) -> Result:
        """Run to the end."""
        while self.step():
            pass
        return self.make_result()

    def make_result(self) -> Result:
        """The result until now."""
        world, ledger, now = self.world, self.world.ledger, self.queue.now
        revision = stack.make_target(stack.NEW).revision
        upgraded = [name for name, node in world.nodes.items() if node.revision == revision]
        sizes = {node.name: node.gpus for node in self.fleet.nodes}
        sizes |= {name: node.spec.gpus for name, node in world.nodes.items()}
        upgrades, gangs = ledger.outage_gpu_seconds(sizes, now) / HOUR, ledger.stall_gpu_seconds(now) / HOUR
        thrown, idle = ledger.thrown_away / HOUR, ledger.idle / HOUR
        return Result(
            fleet=self.fleet.name,
            strategy=self.strategy.value,
            seed=self.settings.seed,
            nodes=len(self.fleet.nodes),
            gpus=self.fleet.gpus,
            jobs=sum(job.running for job in self.fleet.jobs),
            upgraded=len(upgraded),
            seconds=now if self.is_over and len(upgraded) == len(world.nodes) else None,
            ended=self._describe_end(),
            interruptions=ledger.interruptions.total(),
            gangs_interrupted=len(ledger.interruptions),
            most_interruptions=max(ledger.interruptions.values(), default=0),
            lost_gpu_hours=upgrades + gangs + thrown + idle,
            upgrades_gpu_hours=upgrades,
            gangs_gpu_hours=gangs,
            thrown_away_gpu_hours=thrown,
            idle_gpu_hours=idle,
            lower_bound_gpu_hours=self._lower_bound(upgraded, sizes),
            left=len(world.nodes) - len(upgraded),
            batches=len(self.controller.batches) if self.controller is not None else 0,
            predicted=self._predicted(),
        )

    def _lower_bound(self, upgraded: Iterable[str], sizes: dict[str, int]) -> float:
        """The lower bound of any order of upgrades: all upgrades, and one checkpoint and restart for each gang that was
        stopped and would not have ended before `completion_until`.
        """
        upgrades = sum(sizes[name] * self.sampler.draw_upgrade(name) for name in upgraded)
        jobs = [self.world.jobs[name] for name in self.world.ledger.interruptions]
        gangs = sum(
            job.gpus * (self.sampler.draw_checkpoint(job.spec, 1) + self.sampler.draw_restart(job.spec, 2))
            for job in jobs
            if not self._ends_in_time(job.spec.declared_end)
        )
        return (upgrades + gangs) / HOUR

    def _ends_in_time(self, end: int | None) -> bool:
        until = self.settings.rollout.completion_until
        return until is not None and end is not None and self.queue.time_at(end) <= until

    def _describe_end(self) -> str:
        if self.controller is not None:
            return f"{self.controller.phase}: {self.controller.message}"
        if self.is_over:
            return "every node is upgraded and every job trains"
        return (
            "waiting for jobs that do not end" if self.strategy is SimulatedStrategy.WAIT else "jobs cannot be placed"
        )

    def _predicted(self) -> InitialForecast | None:
        if self.controller is None or self.controller.first is None:
            return None
        forecast = self.controller.first
        prediction, seconds = forecast.prediction, self.queue.seconds_at
        return InitialForecast(
            batches=forecast.summary.batches,
            interruptions=forecast.summary.interruptions,
            lost_gpu_hours=prediction.lost_gpu_hours,
            lower_bound_gpu_hours=prediction.lower_bound_gpu_hours,
            finish_p50=seconds(prediction.finish_p50) if prediction.finish_p50 is not None else None,
            finish_p95=seconds(prediction.finish_p95) if prediction.finish_p95 is not None else None,
        )


def simulate_rollout(fleet: Fleet, strategy: SimulatedStrategy, settings: SimulationSettings) -> Result:
    """Simulate one rollout of a fleet from its begin to its end, or to the horizon.

    Raises:
        ConfigurationError: the budget is neither a number of GPUs nor a percentage.
    """
    return Simulation(fleet, strategy, settings).run()
