"""`python -m tests.support.find_seeds --end 20000 [NAME...]`: runs that find reverted repairs, for the table of them.

What changes the world of chaos runs, or how often the controller reads, makes other runs of all seeds; then rows of
`reverted_repairs.py` need other seeds. For each row only runs are played that have the faults which it names, with a
changed copy of the package; a seed counts when the same run keeps all laws with the repair.
"""

import argparse
import os
import shutil
import subprocess  # noqa: TID251 - a changed copy of the package needs a process of its own
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.support.repairs import PACKAGE, Repair, Run, revert
from tests.support.repository import ROOT
from tests.support.reverted_repairs import REPAIRS


@contextmanager
def without(repair: Repair) -> Iterator[Path]:
    """A folder with a copy of the package that has lost a repair."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "upgrader"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        revert(repair, copy)
        yield Path(directory)


def play(place: Path, *arguments: object) -> subprocess.Popen[str]:
    """Play seeds with the package in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.play_seeds", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)])},
        cwd=place,
        stdout=subprocess.PIPE,
        text=True,
    )


def keeps_all(seed: int, nodes: int) -> bool:
    """Whether the run of a seed does not fail with the package as it is."""
    with play(PACKAGE.parent, seed, seed + 1, nodes, "", "") as playing:
        shown, _ = playing.communicate()
    return playing.returncode == 0 and not shown


def find(repair: Repair, first: int, end: int, nodes: int) -> Run | None:
    """The first run from a seed on that breaks a law without a repair, and keeps all with it.

    Raises:
        RuntimeError: a run raised an error; the program has shown it.
    """
    laws, faults = ",".join(map(str, repair.laws)), ",".join(fault.value for fault in repair.faults)
    with without(repair) as place, play(place, first, end, nodes, laws, faults) as playing:
        for line in playing.stdout or ():
            if keeps_all(int(line), nodes):
                playing.kill()
                return Run(seed=int(line), nodes=nodes)
    if playing.returncode != 0:
        raise RuntimeError(f"{repair.name}: seeds could not be played, exit code {playing.returncode}")
    return None


def main() -> None:
    """Print the run of each repair, or that there is none in the range."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="rows of the table; without, all that have a run")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--nodes", type=int, help="instead of what each row has")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - {repair.name for repair in REPAIRS}):
        parser.error(f"no row of the table is called {', '.join(unknown)}")
    repairs = [repair for repair in REPAIRS if (repair.name in given.names if given.names else repair.finds)]

    def show(repair: Repair) -> None:
        nodes = given.nodes or (repair.finds.nodes if repair.finds else 2)
        found = find(repair, given.first, given.end, nodes)
        sys.stdout.write(f"{repair.name}: {found or 'none'}\n")
        sys.stdout.flush()

    with ThreadPoolExecutor(given.workers) as pool:
        list(pool.map(show, repairs))


if __name__ == "__main__":
    main()
