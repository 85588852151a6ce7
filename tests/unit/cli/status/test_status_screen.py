"""The screen of `upgrader status`: who agreed, how far it is, what it waits for; a fleet of thousands."""

import io
from datetime import timedelta
from pathlib import Path

import msgspec

from tests.support.golden import assert_golden
from tests.support.manifests import changed, node_upgrade, upgrade_plan
from upgrader.api.v1alpha1 import NodeUpgrade, UpgradePlan
from upgrader.cli.base import render
from upgrader.cli.shared.progress import Progress
from upgrader.cli.status import status_screen
from upgrader_dev.simulated.cluster.ports import START

GOLDEN = Path(__file__).parents[1] / "golden"
APPROVAL = {
    "by": "sre@example",
    "at": "2026-11-21T08:00:00Z",
    "limits": {"maxInterruptions": 3, "maxLostGpuHours": 12.31, "expendable": ["ml/Job/toy"]},
}
GROUP = {"name": "c", "nodes": ["node-1"], "gangs": ["ml/Job/train"], "gpus": 8}
BATCHES = [
    {
        "number": 1,
        "kind": "Canary",
        "nodeCount": 1,
        "startedAt": "2026-11-21T08:00:00Z",
        "askUntil": "2026-11-21T08:30:00Z",
        "endedAt": "2026-11-21T08:05:00Z",
    },
    {
        "number": 2,
        "kind": "Asked",
        "groups": [GROUP],
        "startedAt": "2026-11-21T08:55:00Z",
        "askUntil": "2026-11-21T09:30:00Z",
    },
]


def plan(approval=None, **status):
    manifest = changed(upgrade_plan(), "spec.approval", approval) if approval is not None else upgrade_plan()
    return msgspec.convert(manifest | {"status": status}, UpgradePlan)


def upgrade(number, phase="Draining", **status):
    manifest = changed(node_upgrade(f"upgrade-{number}"), "spec.node.name", f"node-{number}")
    return msgspec.convert(manifest | {"status": {"phase": phase} | status}, NodeUpgrade)


def screen(of, upgrades=()):
    stream = io.StringIO()
    seen = Progress(at=START + timedelta(minutes=1), plan=of, upgrades=list(upgrades), requests=[])
    render.print_renderable(status_screen.plan_tables(seen), stream)
    return stream.getvalue()


def test_everything_that_a_plan_may_say():
    of = plan(
        APPROVAL,
        phase="Running",
        reason="Soaking",
        message="canaries are watched",
        soakUntil="2026-11-21T09:10:00Z",
        reservedNodes=["node-7"],
        changed="one batch less, since ml/Job/short ended",
        lostGpuHours={"predicted": 12.3, "actual": 3.14},
        counts={"nodes": 9, "succeeded": 1, "interruptions": 1, "restored": 1},
        batches=BATCHES,
        forecast={
            "batches": 2,
            "nodes": 7,
            "interruptions": 2,
            "blocked": 1,
            "waitingForCompletion": 1,
            "nextStartsAt": "2026-11-21T22:00:00Z",
            "waitsFor": "the window Mon-Fri 22:00-06:00",
            "lostGpuHours": 9.2,
            "finishP50": "2026-11-21T23:00:00Z",
            "finishP95": "2026-11-22T01:00:00Z",
        },
        blockers=[{"subject": "node-8", "reason": "NodeSkipped", "message": "a person said so; remove the label."}],
        failures=[{"subject": "node-3", "reason": "NotPrepared", "message": "the image could not be pulled"}],
    )
    waiting = upgrade(1, deadline="2026-11-21T09:30:00Z", message="2 pods are still there")
    assert_golden(GOLDEN / "status-everything.txt", screen(of, [waiting]))


def test_a_plan_that_nobody_approved():
    text = screen(plan(phase="Proposed", message="waiting for approval (upgrader approve)", reason="NotApproved"))
    assert "waiting for approval (upgrader approve) (NotApproved)\nnot approved\n" in text


def test_a_plan_that_has_ended_has_nothing_to_come():
    assert "to come" not in screen(plan(APPROVAL, phase="Completed"))


def test_a_fleet_of_thousands_is_folded_and_failures_come_first():
    upgrades = [upgrade(number, phase="Succeeded" if number != 1999 else "Failed") for number in range(2000)]
    batches = [BATCHES[0] | {"number": number} for number in range(1, 101)]
    text = screen(plan(APPROVAL, phase="Completed", batches=batches), upgrades)
    assert len(text.splitlines()) < 40
    assert "and 90 earlier batches" in text
    assert "and 1990 more nodes: 1990 Succeeded" in text
    assert "node-1999" in text
