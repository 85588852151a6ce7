"""Following: what it ends with, and what a terminal shows."""

import asyncio
import io
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.golden import assert_golden
from tests.support.manifests import changed, upgrade_plan
from tests.support.terminal import upgrader
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.cli.base import render
from upgrader.cli.shared.progress import Patience, Progress, Verdicts, changed_lines
from upgrader.cli.status import status_screen, watch_display
from upgrader.core.errors import BlockedError, DeadlineError, RolloutFailedError
from upgrader_dev.commands import figures
from upgrader_dev.demo.report import DemoReport, JobReport, NodeReport, UpgradeReport, VersionChange
from upgrader_dev.simulated.cluster.ports import START

BLOCKER = {"subject": "default/Job/a", "reason": "Vetoed", "message": "it forbids any disruption"}
BATCH = {"number": 1, "groups": [], "startedAt": "2026-11-21T09:00:00Z", "askUntil": "2026-11-21T10:00:00Z"}


def seen(after=0, state="Running", failures=(), **status):
    manifest = changed(upgrade_plan(), "spec.state", state)
    manifest["metadata"]["generation"] = 1
    manifest["status"] = {"observedGeneration": 1, "failures": list(failures)} | status
    plan = msgspec.convert(manifest, UpgradePlan)
    return Progress(at=START + timedelta(seconds=after), plan=plan, upgrades=[], requests=[])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("phase", ["Aborted", "Failed", "Superseded"])
def test_a_bad_end(phase):
    with pytest.raises(RolloutFailedError, match=phase):
        Verdicts(Patience()).has_ended(seen(phase=phase))


def test_a_good_end():
    assert Verdicts(Patience()).has_ended(seen(phase="Completed")) is True


def test_paused_by_a_failure():
    failure = {"subject": "gpu-0", "reason": "KubeletLost", "message": "neither kubelet is well"}
    with pytest.raises(RolloutFailedError, match="gpu-0: KubeletLost: neither kubelet is well"):
        Verdicts(Patience()).has_ended(seen(phase="Paused", reason="TooManyFailures", failures=[failure]))


def test_a_canary_that_failed_is_a_failure_whatever_is_tolerated():
    failure = {"subject": "gpu-0", "reason": "NotValid", "message": "no device"}
    with pytest.raises(RolloutFailedError, match="gpu-0: NotValid") as raised:
        Verdicts(Patience()).has_ended(seen(phase="Paused", reason="CanaryFailed", failures=[failure]))
    assert raised.value.exit_code == 6


def test_the_plan_s_own_deadline_has_its_exit_code():
    with pytest.raises(DeadlineError, match="before all nodes were upgraded") as raised:
        Verdicts(Patience()).has_ended(seen(phase="Failed", reason="DeadlinePassed", message="the deadline passed"))
    assert raised.value.exit_code == 5


def test_paused_until_somebody_approves_more():
    with pytest.raises(BlockedError, match="upgrader approve pool-a-1"):
        Verdicts(Patience()).has_ended(seen(phase="Paused", message="the next batch would stop 2"))


@pytest.mark.parametrize(
    "still",
    [
        seen(phase="Paused", state="Paused"),
        seen(phase="Paused", observedGeneration=0),
        seen(phase="Paused", batches=[BATCH]),
        seen(phase="Proposed"),
        seen(phase="Aborting"),
    ],
    ids=["by a person", "before the controller looked", "batch under way", "proposed", "aborting"],
)
def test_what_is_followed_further(still):
    assert Verdicts(Patience()).has_ended(still) is False


def test_blocked_for_long_and_only_without_a_break():
    verdicts = Verdicts(Patience(blocked=10))
    assert verdicts.has_ended(seen(0, phase="Running", blockers=[BLOCKER])) is False
    assert verdicts.has_ended(seen(9, phase="Running", blockers=[BLOCKER], forecast={"batches": 1})) is False
    assert verdicts.has_ended(seen(10, phase="Running", blockers=[BLOCKER])) is False
    with pytest.raises(BlockedError, match="it forbids any disruption"):
        verdicts.has_ended(seen(20, phase="Running", blockers=[BLOCKER]))


def test_nodes_that_are_taken_when_their_jobs_end_are_not_blocked():
    verdicts = Verdicts(Patience(blocked=10))
    waiting = {"phase": "Running", "blockers": [BLOCKER], "forecast": {"waitingForCompletion": 1}}
    assert [verdicts.has_ended(seen(after, **waiting)) for after in (0, 20, 40)] == [False, False, False]


def test_followed_as_long_as_was_asked():
    verdicts = Verdicts(Patience(blocked=None, whole=5))
    assert verdicts.has_ended(seen(0, phase="Running", blockers=[BLOCKER])) is False
    with pytest.raises(DeadlineError):
        verdicts.has_ended(seen(5, phase="Running", blockers=[BLOCKER]))


def test_only_what_is_new_is_said():
    first = seen(phase="Running", message="started")
    assert changed_lines(None, first) == ["plan pool-a-1: Running, started"]
    assert changed_lines(first, seen(1, phase="Running", message="started")) == []


def test_a_terminal_shows_a_table_in_place(rig, forecast_file):
    assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
    (plan,) = rig.cluster.store.copy_all(UPGRADE_PLANS)
    stream = Terminal()

    async def sleep(_):
        await rig.run_second()

    name = plan["metadata"]["name"]
    asyncio.run(watch_display.follow_plan(rig.context, name, Patience(), stream=stream, sleep=sleep))
    assert "\x1b[" in stream.getvalue()
    assert "Completed" in stream.getvalue()


def test_no_color_is_heeded_on_a_terminal(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    render.print_renderable(status_screen.plan_tables(seen(phase="Failed", message="no")), stream)
    assert "\x1b[3" not in stream.getvalue()


def test_what_the_demo_shows():
    gang = JobReport(
        name="gang", members=2, steps_done=90, acknowledged_step=60, resumed_from_step=60, steps_lost=0,
        interruptions=1, seconds_not_running=12.25, refusals=0, finished=False,
    )  # fmt: skip
    short = msgspec.structs.replace(
        gang, name="short", members=1, acknowledged_step=None, resumed_from_step=None, interruptions=0,
        seconds_not_running=0.0, finished=True,
    )  # fmt: skip
    unwilling = msgspec.structs.replace(gang, name="unwilling", members=1, refusals=1)
    bystander = msgspec.structs.replace(short, name="bystander", finished=False)
    versions = {"driver": VersionChange(before="1", after="2"), "device_plugin": VersionChange(before="a", after="b")}
    box = NodeReport(
        name="gpu-a", kind="box", kubelet=VersionChange(before="1.34.4", after="1.35.4"), api_writes=17, **versions
    )
    same = VersionChange(before="", after="")
    kwok = NodeReport(name="kwok-0", kind="kwok", driver=same, device_plugin=same, kubelet=same, api_writes=0)
    upgrade = UpgradeReport(
        node="gpu-a",
        reason="Rollout",
        phase="Succeeded",
        seconds={"Preparing": 3.0, "Upgrading": 5.0},
        closed_seconds=17.5,
    )
    stream = io.StringIO()
    render.print_renderable(
        figures.demo_tables(
            DemoReport(jobs=(gang, short, unwilling, bystander), nodes=(box, kwok), upgrades=(upgrade,), seconds=171.0)
        ),
        stream,
    )
    assert_golden(Path(__file__).parents[1] / "golden/demo.txt", stream.getvalue())
