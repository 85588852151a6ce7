"""The first screen: its plan is real output, its picture has the phases of the code."""

import re

from tests.support.repository import ROOT
from upgrader.core.model.phases import NodePhase, RequestPhase

README = (ROOT / "README.md").read_text()
GOLDEN = (ROOT / "tests/unit/cli/golden/plan.txt").read_text()


def test_the_plan_is_what_the_command_prints() -> None:
    (block,) = re.findall(r"```\n\$ upgrader plan .*\n((?:.*\n)+?)\$ upgrader apply", README)
    printed = [" ".join(line.split()) for line in GOLDEN.splitlines()]
    shown = [" ".join(line.split()) for line in block.splitlines()]
    assert [line for line in shown if line not in printed] == []
    assert sorted(shown, key=printed.index) == shown


def test_the_picture_has_phases_of_nodes_and_requests_in_their_order() -> None:
    (picture,) = re.findall(r"```mermaid\n(.*?)```", README, re.DOTALL)
    words = list(dict.fromkeys(re.findall(r"\b[A-Z][a-z]+\b", picture.replace("flowchart LR", ""))))
    for phases in (NodePhase, RequestPhase):
        names = [phase.value for phase in phases]
        shown = [word for word in words if word in names]
        assert len(shown) > 4
        assert sorted(shown, key=names.index) == shown
    known = {phase.value for phases in (NodePhase, RequestPhase) for phase in phases}
    assert [word for word in words if word not in known] == []
