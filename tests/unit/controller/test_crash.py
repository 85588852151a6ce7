"""Crash points on real processes: each is killed once, frozen once; production passes them without a look."""

import signal
import sys

import pytest

from upgrader.controller.crash import FreezingPoint, KillingPoints, crash_points, point_name
from upgrader.core.model import phases
from upgrader.process.run import run
from upgrader.wiring.compose import NoCrashPoints

PASSING = """
import os
from upgrader.controller.crash import crash_points
points = crash_points(os.environ)
points.reached(("NodeUpgrade", "Unloading", "after-record"), ("NodeUpgrade", "Upgrading", "after-intent"))
points.reached(("NodeUpgrade", "Upgrading", "before-act"))
points.reached(("NodeUpgrade", "Upgrading", "after-act"))
print("survived")
"""


def start(**env):
    return run(
        [sys.executable, "-c", PASSING], timeout=30, env={key: str(value) for key, value in env.items()}, check=False
    )


def test_a_process_is_killed_once_at_every_place(tmp_path):
    file = tmp_path / "points"
    ended = [start(UPGRADER_CRASH_FILE=file) for _ in range(3)]
    assert [one.code for one in ended] == [128 + signal.SIGKILL, 128 + signal.SIGKILL, 0]
    assert ended[-1].text.strip() == "survived"
    assert file.read_text().splitlines() == [
        "NodeUpgrade.Unloading.after-record",
        "NodeUpgrade.Upgrading.after-intent",
        "NodeUpgrade.Upgrading.after-act",
    ]


def test_production_has_none(tmp_path):
    assert isinstance(crash_points({}), NoCrashPoints)
    assert start().text.strip() == "survived"


def test_every_point_of_the_state_machines_has_a_name_of_its_own():
    names = [point_name(point) for point in phases.crash_points()]
    assert len(names) == len(set(names)) > 50


def test_a_freeze_happens_once(tmp_path, monkeypatch):
    stopped = []
    monkeypatch.setattr("os.kill", lambda pid, number: stopped.append(number))
    point = crash_points(
        {"UPGRADER_FREEZE_AT": "NodeUpgrade.Tainting.before-act", "UPGRADER_FREEZE_FILE": str(tmp_path / "frozen")}
    )
    assert isinstance(point, FreezingPoint)
    for _ in range(2):
        point.reached(("NodeUpgrade", "Tainting", "after-intent"))
        point.reached(("NodeUpgrade", "Tainting", "before-act"))
    assert stopped == [signal.SIGSTOP]
    assert (tmp_path / "frozen").read_text() == "NodeUpgrade.Tainting.before-act\n"


def test_a_freeze_without_a_file_is_refused():
    with pytest.raises(KeyError):
        crash_points({"UPGRADER_FREEZE_AT": "x"})


def test_a_place_that_is_listed_is_passed(tmp_path):
    (tmp_path / "points").write_text("A.B.after-act\n")
    KillingPoints(tmp_path / "points").reached(("A", "B", "after-act"))
