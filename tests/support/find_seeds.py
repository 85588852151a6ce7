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
from upgrader.simulate.chaos.run import run


@contextmanager
def without(repair: Repair) -> Iterator[Path]:
    """A folder with a copy of the package that has lost a repair."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "upgrader"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        revert(repair, copy)
        yield Path(directory)


def find(repair: Repair, first: int, end: int, nodes: int) -> Run | None:
    """The first run from a seed on that breaks a law without a repair, and keeps all with it."""
    lists = [",".join(map(str, repair.laws)), ",".join(fault.value for fault in repair.faults)]
    command = [sys.executable, "-m", "tests.support.play_seeds", str(first), str(end), str(nodes), *lists]
    with without(repair) as directory:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT)])}
        playing = subprocess.Popen(command, env=environment, cwd=directory, stdout=subprocess.PIPE, text=True)
        with playing:
            for line in playing.stdout or ():
                if not run(int(line), nodes=nodes).violations:
                    playing.kill()
                    return Run(seed=int(line), nodes=nodes)
    return None


def main() -> None:
    """Print the run of each repair, or that there is none in the range."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="rows of the table; all without")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--nodes", type=int, help="instead of what each row has")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    repairs = [repair for repair in REPAIRS if repair.finds and (not given.names or repair.name in given.names)]

    def show(repair: Repair) -> None:
        nodes = given.nodes or (repair.finds.nodes if repair.finds else 2)
        found = find(repair, given.first, given.end, nodes)
        sys.stdout.write(f"{repair.name}: {found or 'none'}\n")
        sys.stdout.flush()

    with ThreadPoolExecutor(given.workers) as pool:
        list(pool.map(show, repairs))


if __name__ == "__main__":
    main()
