"""The two walks of the architecture page: short, and entered by a real rollout on the simulated cluster."""

import re
import sys

import pytest

from tests.support.repository import ROOT
from upgrader_dev.simulated.cluster.rig import Rig, start_training

PAGE = (ROOT / "docs/contributing/architecture.md").read_text()
WALKS = {
    title: re.findall(r"^\d+\. `([^`]+)`( \([^)]+\))?: ", text, re.MULTILINE)
    for title, text in re.findall(r"^### (.+)\n((?:(?!^#).*\n)+)", PAGE.partition("## Two walks")[2], re.MULTILINE)
}
LONGEST = {"A node, from its label to its release": 25, "An acknowledgement, from the declaration to the stop": 18}


def test_the_walks_are_short() -> None:
    assert {title: len(steps) <= LONGEST[title] for title, steps in WALKS.items()} == dict.fromkeys(LONGEST, True)
    assert min(map(len, WALKS.values())) > 15


@pytest.fixture
async def entered() -> set[str]:
    """Files of upgrader in which a function runs while a gang's nodes are upgraded."""
    files: set[str] = set()
    rig = Rig()
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        await rig.run_until(lambda: rig.is_over("up"))
    finally:
        sys.setprofile(None)
    return files


async def test_a_rollout_enters_each_file_of_the_walks(entered: set[str]) -> None:
    here = {path for steps in WALKS.values() for path, elsewhere in steps if not elsewhere}
    constants = {"upgrader/api/names.py"}
    assert [path for path in sorted(here - constants) if str(ROOT / path) not in entered] == []


def test_every_file_of_the_walks_exists() -> None:
    assert [path for steps in WALKS.values() for path, _ in steps if not (ROOT / path).is_file()] == []
