"""`python -m upgrader_dev.chaos --seed 1 --runs 200`: plays seeds and prints the seeds that break a law."""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from msgspec import Struct

from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.run import RunOutcome, play_run


class FailedRun(Struct, frozen=True, kw_only=True):
    """A run that raised an error: an error of the simulation, or an error of the product that no code handled."""

    seed: int
    text: str

    @property
    def failed(self) -> bool:
        """Always True."""
        return True

    def __str__(self) -> str:
        """The seed and the traceback."""
        return f"seed {self.seed}: raised an error\n{self.text}"


def main(arguments: list[str] | None = None, run_seed: Callable[..., RunOutcome] = play_run) -> int:
    """Play seeds; the exit status is 1 if a seed broke a law or raised an error."""
    parser = argparse.ArgumentParser(prog="chaos", description="Seeded rollouts with faults, judged by the laws.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="the number of seeds")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of every run; 0: a random number")
    parser.add_argument("--without", type=Fault, action="append", default=[], help="a fault to leave out")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="parallel processes")
    parser.add_argument("--verbose", action="store_true", help="print a line for every run")
    options = parser.parse_args(arguments)
    began, failed = time.monotonic(), 0
    play = partial(play_seed, run_seed, nodes=options.nodes, off=frozenset(options.without))
    for outcome in play_seeds(
        play, range(options.seed, options.seed + options.runs), min(options.workers, options.runs)
    ):
        failed += outcome.failed
        if options.verbose or outcome.failed:
            print_outcome(outcome, options.nodes)
    seconds = time.monotonic() - began
    sys.stdout.write(f"{options.runs} runs in {seconds:.1f} s, {failed} broke a law or raised an error\n")
    return int(failed > 0)


def play_seed(
    run_seed: Callable[..., RunOutcome], seed: int, *, nodes: int, off: Container[Fault]
) -> RunOutcome | FailedRun:
    """Play one seed; an error in it does not end the other runs."""
    try:
        return run_seed(seed, nodes=nodes, off=off)
    except Exception:  # noqa: BLE001 - the traceback is printed, and the run counts as failed
        return FailedRun(seed=seed, text=traceback.format_exc())


def play_seeds(play: partial[RunOutcome | FailedRun], seeds: range, workers: int) -> Iterator[RunOutcome | FailedRun]:
    """The outcome of each seed, in the order of the seeds."""
    if workers < 2:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(play, seeds)


def print_outcome(outcome: RunOutcome | FailedRun, nodes: int) -> None:
    sys.stdout.write(f"{outcome}\n")
    if outcome.failed:
        size = f" NODES={nodes}" if nodes else ""
        sys.stdout.write(f"  again: make chaos SEED={outcome.seed} RUNS=1{size}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
