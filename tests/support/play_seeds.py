"""`python -m tests.support.play_seeds FIRST END NODES LAWS FAULTS`: prints each seed whose run breaks one of the laws.

It plays the package that it finds first, which may be a changed copy. Lists are separated by commas; without laws each
seed is printed whose run failed, and without faults all seeds are played.
"""

import sys

from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault, draw_rates
from upgrader_dev.chaos.run import play_run

LIKELY = 0.01
"""A rate of a fault from which on it happens in most runs."""


def has(seed: int, faults: list[Fault]) -> bool:
    """Whether these faults are likely to happen in the run of a seed."""
    drawn = draw_rates(Draws(seed, "faults"))
    return all(drawn.rate_of(fault) >= LIKELY for fault in faults)


def breaks(seed: int, nodes: int, laws: set[str]) -> bool:
    """Whether the run of a seed breaks one of the laws; without laws, whether it failed."""
    outcome = play_run(seed, nodes=nodes)
    return bool(laws & {str(each.law) for each in outcome.violations}) if laws else outcome.failed


def main(first: str, end: str, nodes: str, laws: str, faults: str) -> None:
    """Play a range of seeds, among them only those that have all of the faults."""
    wanted, named = [Fault(name) for name in faults.split(",") if name], {name for name in laws.split(",") if name}
    for seed in range(int(first), int(end)):
        if has(seed, wanted) and breaks(seed, int(nodes), named):
            sys.stdout.write(f"{seed}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
