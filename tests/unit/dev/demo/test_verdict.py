"""The demo says when it did not show what it is for."""

import msgspec
import pytest

from upgrader_dev.demo.report import DemoReport, JobReport, NodeReport, UpgradeReport, VersionChange
from upgrader_dev.demo.verdict import find_faults

JOB = JobReport(
    name="gang", members=2, steps_done=90, acknowledged_step=60, resumed_from_step=60, steps_lost=0,
    interruptions=1, seconds_not_running=30.0, refusals=0, finished=False,
)  # fmt: skip
NODE = NodeReport(
    name="vm-a", kind="virtual", api_writes=20,
    driver=VersionChange(before="1", after="2"), device_plugin=VersionChange(before="1", after="2"),
    kubelet=VersionChange(before="1", after="2"), module=VersionChange(before="1", after="2"),
)  # fmt: skip
KWOK = msgspec.structs.replace(
    NODE, name="kwok-0", kind="kwok", kubelet=VersionChange(before="1", after="1"), api_writes=0
)
UPGRADE = UpgradeReport(node="vm-a", reason="Rollout", phase="Succeeded", seconds={}, closed_seconds=90.0)
GOOD = DemoReport(jobs=(JOB,), nodes=(NODE, KWOK), upgrades=(UPGRADE,), seconds=400.0)


def with_job(**changes):
    return msgspec.structs.replace(GOOD, jobs=(msgspec.structs.replace(JOB, **changes),))


def with_node(one=NODE, **changes):
    return msgspec.structs.replace(GOOD, nodes=(msgspec.structs.replace(one, **changes),))


def with_upgrades(*phases):
    return msgspec.structs.replace(GOOD, upgrades=tuple(msgspec.structs.replace(UPGRADE, phase=one) for one in phases))


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (GOOD, ()),
        (with_job(steps_lost=3), ("job gang lost 3 step(s)",)),
        (with_job(interruptions=2), ("job gang was stopped 2 times",)),
        (with_job(resumed_from_step=50), ("job gang acknowledged step 60 and resumed from step 50",)),
        (with_job(interruptions=0, acknowledged_step=None), ()),
        (with_node(module=VersionChange(before="1", after="1")), ("vm-a still has module in the kernel 1",)),
        (with_node(driver=VersionChange(before="", after="")), ("vm-a still has driver none",)),
        (with_node(KWOK, api_writes=2), ("kwok-0 belongs to no pool and was changed 2 time(s)",)),
        (with_upgrades("Failed", "Succeeded"), ()),
        (with_upgrades("Succeeded", "Failed"), ("the last upgrade of vm-a (Rollout) ended as Failed",)),
    ],
)
def test_what_was_not_shown_is_said(report, expected):
    assert find_faults(report) == expected
