"""`python -m upgrader_dev.chaos --seed 1 --runs 200`: plays seeds, and prints those that break a law."""

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
from upgrader_dev.chaos.run import Outcome, play_run


class Raised(Struct, frozen=True, kw_only=True):
    """A run that did not come to its end: an error of the world itself, or one that nothing of the product caught."""

    seed: int
    text: str

    @property
    def failed(self) -> bool:
        """Always."""
        return True

    def __str__(self) -> str:
        """With the traceback."""
        return f"seed {self.seed}: raised an error\n{self.text}"


def main(arguments: list[str] | None = None, run_seed: Callable[..., Outcome] = play_run) -> int:
    """Play seeds; 1 when a law was broken in any of them."""
    parser = argparse.ArgumentParser(prog="chaos", description="Seeded rollouts with faults, judged by the laws.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds from there on")
    parser.add_argument("--nodes", type=int, default=0, help="so many nodes in every run, instead of a few by chance")
    parser.add_argument("--without", type=Fault, action="append", default=[], help="a fault that does not happen")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes that play beside each other"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for every run")
    given = parser.parse_args(arguments)
    began, failed = time.monotonic(), 0
    play = partial(play_seed, run_seed, nodes=given.nodes, off=frozenset(given.without))
    for outcome in play_seeds(play, range(given.seed, given.seed + given.runs), min(given.workers, given.runs)):
        failed += outcome.failed
        if given.verbose or outcome.failed:
            print_outcome(outcome, given.nodes)
    seconds = time.monotonic() - began
    sys.stdout.write(f"{given.runs} runs in {seconds:.1f} s, {failed} broke a law or raised an error\n")
    return int(failed > 0)


def play_seed(run_seed: Callable[..., Outcome], seed: int, *, nodes: int, off: Container[Fault]) -> Outcome | Raised:
    """Play one seed; an error in it does not end the others."""
    try:
        return run_seed(seed, nodes=nodes, off=off)
    except Exception:  # noqa: BLE001 - it is shown, and counts as failed
        return Raised(seed=seed, text=traceback.format_exc())


def play_seeds(play: partial[Outcome | Raised], seeds: range, workers: int) -> Iterator[Outcome | Raised]:
    """What became of each seed, in their order."""
    if workers < 2:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(play, seeds)


def print_outcome(outcome: Outcome | Raised, nodes: int) -> None:
    sys.stdout.write(f"{outcome}\n")
    if outcome.failed:
        size = f" NODES={nodes}" if nodes else ""
        sys.stdout.write(f"  again: make chaos SEED={outcome.seed} RUNS=1{size}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
