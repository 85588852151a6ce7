"""Each repair is needed: without it a chaos run breaks a law, and with it the same run keeps all of them."""

import json
import os
import shutil
import subprocess  # noqa: TID251 - a changed copy of the package needs a process of its own
import sys

import pytest

from tests.support.repairs import PACKAGE, revert
from tests.support.reverted_repairs import REPAIRS

PROGRAM = (
    "import json, sys; from upgrader_dev.chaos.run import play_run; "
    "found = play_run(int(sys.argv[1]), nodes=int(sys.argv[2])); "
    "print(json.dumps([[each.law, str(each)] for each in found.violations] + [[0, each] for each in found.unknown]))"
)


def played(found, directory):
    """Laws that a run breaks, with how, by the package in a directory."""
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(found.seed), str(found.nodes)],
        env=environment,
        cwd=directory,
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("repair", [repair for repair in REPAIRS if repair.finds], ids=str)
def test_a_run_finds_what_comes_back_without_a_repair(repair, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "upgrader", ignore=shutil.ignore_patterns("__pycache__"))
    assert played(repair.finds, tmp_path) == []
    revert(repair, tmp_path / "upgrader")
    broken = played(repair.finds, tmp_path)
    assert {law for law, _ in broken} & set(repair.laws), broken
