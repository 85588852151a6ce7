"""The judge of chaos runs, laws 6 to 10: for each a log that keeps it, and one that breaks it, both written by hand."""

from datetime import timedelta

import pytest

from tests.support.written_log import (
    NAMESPACE,
    TAINT,
    Log,
    job,
    member,
    node,
    prepared,
    request,
    stop,
    upgrade,
    upgrade_job,
)
from upgrader_dev.chaos.laws.journal import Author
from upgrader_dev.simulated.cluster.ports import START

REVISION = "gpu-upgrader.io/revision"


@pytest.fixture
def log():
    return Log()


# ---- law 6


def test_law_6_a_node_upgrade_never_has_a_step(log):
    made = {"metadata": {"creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": {"node": {"name": "gpu-0"}}}
    log.put("NodeUpgrade", "v", by=Author.CONTROLLER, namespace="", **made)
    log.judge.judge_deadlines(START + timedelta(minutes=10))
    assert log.laws == []
    log.judge.judge_deadlines(START + timedelta(minutes=20))
    assert log.laws == [6]


def test_law_6_a_phase_is_entered_without_a_deadline(log):
    upgrade(log, "Draining", deadline=None)
    assert log.laws == [6]


def test_law_6_a_phase_is_not_left_when_its_deadline_has_passed(log):
    upgrade(log, "Draining")
    log.judge.judge_deadlines(START + timedelta(hours=1, minutes=10))
    assert log.laws == []
    log.judge.judge_deadlines(START + timedelta(hours=2))
    assert log.laws == [6]


def test_law_6_a_plan_does_not_end(log):
    log.put("UpgradePlan", "up", namespace="", status={"phase": "Aborting"})
    log.judge.judge_end(log.now)
    assert log.laws == [6]


# ---- law 7


def test_law_7_a_gang_is_stopped_without_a_record(log):
    job(log)
    job(log, suspend=True, by=Author.CONTROLLER)
    assert log.laws == [7]


def test_law_7_a_gang_is_stopped_before_the_intent_is_written(log):
    job(log)
    request(log, "Parked")
    stop(log)
    assert log.laws == [7]


def test_law_7_a_node_is_closed_for_a_node_upgrade_that_is_not_there(log):
    node(log)
    node(log, by=Author.CONTROLLER, taints=[TAINT], annotations={"gpu-upgrader.io/claimed-by": "uid-of-nobody"})
    assert log.laws == [7]


@pytest.mark.parametrize(("seconds", "laws"), [(30, []), (600, [7])], ids=["a slow read ago", "long ago"])
def test_a_node_upgrade_that_was_removed_and_made_anew_may_be_started_that_moment(log, seconds, laws):
    prepared(log)
    upgrade(log)
    log.gone("NodeUpgrade", "v", namespace="")
    anew = {"uid": "uid-anew", "creationTimestamp": "2026-11-21T09:00:00Z"}
    deadline = {"phase": "Preparing", "deadline": "2026-11-21T10:00:00Z"}
    log.put("NodeUpgrade", "v", namespace="", metadata=anew, spec={"node": {"name": "gpu-0"}}, status=deadline)
    log.now += timedelta(seconds=seconds)
    upgrade_job(log)
    assert log.laws == laws


def test_a_node_may_be_closed_late_for_a_node_upgrade_that_was_there_when_that_was_sent(log):
    node(log)
    upgrade(log, "Tainting")
    log.gone("NodeUpgrade", "v", by=Author.CONTROLLER, namespace="")
    log.late = 60
    log.now += timedelta(seconds=58)
    node(log, by=Author.CONTROLLER, taints=[TAINT], annotations={"gpu-upgrader.io/claimed-by": "uid-v"})
    assert log.laws == []


@pytest.mark.parametrize(("seconds", "laws"), [(30, []), (600, [7])], ids=["a slow read ago", "long ago"])
def test_a_node_may_be_closed_for_a_node_upgrade_that_was_removed_by_force_while_the_node_was_read(log, seconds, laws):
    node(log)
    upgrade(log, "Tainting")
    log.gone("NodeUpgrade", "v", namespace="")
    log.now += timedelta(seconds=seconds)
    node(log, by=Author.CONTROLLER, taints=[TAINT], annotations={"gpu-upgrader.io/claimed-by": "uid-v"})
    assert log.laws == laws


def test_law_7_a_node_is_worked_on_before_the_intent_is_written(log):
    upgrade(log, "Unloading")
    prepared(log)
    upgrade_job(log)
    assert log.laws == [7]


# ---- law 8


def test_law_8_a_node_upgrade_begins_in_doubt(log):
    log.judge.stale_state_law.staleness = lambda: "nodes are out of step"
    upgrade(log, "Pending")
    assert log.laws == [8]


def test_law_8_two_upgrades_work_on_a_node(log):
    labels = {"labels": {"gpu-upgrader.io/component": "upgrade"}}
    first = {"metadata": labels, "spec": {"nodeName": "gpu-0"}, "status": {"phase": "Running"}}
    upgrade(log)
    log.put("Pod", "upgrade-v-0", namespace=NAMESPACE, **first)
    upgrade_job(log, "revert-v")
    assert log.laws == [8]


def has_driver(log, driver):
    log.put("Node", "gpu-0", namespace="", metadata={"labels": {"gpu-upgrader.io/driver": driver}}, spec={}, status={})


@pytest.mark.parametrize(("drivers", "laws"), [(["key"], [8]), (["none"], []), (["none", "key"], [])])
def test_law_8_a_node_upgrade_is_ordered_that_would_go_back_to_none(log, drivers, laws):
    """What was given to the node in these minutes a cache may not have shown; it is released in time."""
    for driver in drivers:
        has_driver(log, driver)
    upgrade(log, "Pending")
    assert log.laws == laws


def switch_off(log, driver="key", *, uid="uid-v", **labels):
    meta = {"annotations": {"gpu-upgrader.io/claimed-by": uid}, "labels": {"gpu-upgrader.io/driver": driver, **labels}}
    log.put("Node", "gpu-0", namespace="", metadata=meta, spec={}, status={})
    off = {**meta, "labels": {"gpu-upgrader.io/driver": "none"}}
    log.put("Node", "gpu-0", by=Author.CONTROLLER, namespace="", metadata=off, spec={}, status={})


@pytest.mark.parametrize(("driver", "laws"), [("key", [8]), ("none", []), ("", [])])
def test_law_8_a_node_upgrade_would_go_back_to_none(log, driver, laws):
    upgrade(log, "Unloading")
    switch_off(log, driver)
    assert log.laws == laws


def test_a_node_upgrade_without_any_step_yet_switches_nothing_off(log):
    log.put("NodeUpgrade", "v", namespace="", spec={"node": {"name": "gpu-0"}})
    switch_off(log)
    assert log.laws == []


def test_a_node_upgrade_that_goes_back_switches_off_what_it_has_switched_on(log):
    upgrade(log, "Unloading", reverting=True)
    switch_off(log)
    assert log.laws == []


@pytest.mark.parametrize(("there", "labels", "laws"), [(True, {}, [8]), (False, {REVISION: "r"}, [8]), (False, {}, [])])
def test_nothing_to_go_back_to_is_known_where_a_node_upgrade_was_removed_in_its_midst(log, there, labels, laws):
    spec = {"group": "c-1", "node": {"name": "gpu-0"}}
    first = spec | {"source": {"driverKey": "key"}}
    log.put("NodeUpgrade", "gone", by=Author.CONTROLLER, namespace="", spec=first, status={"phase": "Failed"})
    if not there:
        log.gone("NodeUpgrade", "gone", namespace="")
    anew = {
        "spec": spec | {"takesOver": "uid-gone"},
        "status": {"phase": "Unloading", "deadline": "2026-11-21T10:00:00Z"},
    }
    log.put("NodeUpgrade", "anew", by=Author.CONTROLLER, namespace="", **anew)
    switch_off(log, uid="uid-anew", **labels)
    assert log.laws == laws


# ---- law 9


def test_law_9_a_gang_is_never_restarted(log):
    job(log)
    request(log)
    stop(log)
    request(log, "Ended")
    log.judge.judge_end(log.now)
    assert log.laws == [9, 9]
    assert [one.sentence for one in log.judge.violations] == [
        "gang gang is still stopped",
        "Job gang has the record of a stop",
    ]


def test_law_9_a_node_is_never_released(log):
    node(log, taints=[TAINT], annotations={"gpu-upgrader.io/claimed-by": "uid-v"})
    log.judge.judge_end(log.now)
    assert log.laws == [9, 9]


def test_a_node_whose_way_back_failed_waits_for_a_person(log):
    node(log, taints=[TAINT], annotations={"gpu-upgrader.io/claimed-by": "uid-v"})
    upgrade(log, "Failed", reason="RevertFailed")
    log.judge.judge_end(log.now)
    assert log.laws == []


@pytest.mark.parametrize(
    ("labels", "stacks", "laws"),
    [
        ({"gpu-upgrader.io/operands": "off"}, 0, []),
        ({"gpu-upgrader.io/operands": "off"}, 1, [9, 9]),
        ({"gpu-upgrader.io/operands": "on", "gpu-upgrader.io/revision": "r1"}, 0, [9, 9]),
        ({}, 0, [9, 9]),
    ],
)
def test_a_node_that_lost_its_driver_waits_for_a_person_where_no_stack_is_left(log, labels, stacks, laws):
    node(log, taints=[TAINT], labels=labels, annotations={"gpu-upgrader.io/claimed-by": "uid-of-nobody"})
    for _ in range(stacks):
        log.put("GpuStack", "pool-a", namespace="", spec={"nodeSelector": {}})
    log.judge.judge_end(log.now)
    assert log.laws == laws


def test_law_9_a_member_is_still_asked(log):
    member(log, asked="")
    member(log, by=Author.CONTROLLER)
    log.judge.judge_end(log.now)
    assert log.laws == [9]


def test_a_pod_that_somebody_else_marked_is_his(log):
    member(log)
    log.judge.judge_end(log.now)
    assert log.laws == []


@pytest.mark.parametrize(("on", "laws"), [("gpu-0", []), ("gpu-1", [9, 9])])
def test_a_node_whose_upgrade_was_removed_waits_for_the_work_on_it(log, on, laws):
    node(log, taints=[TAINT], annotations={"gpu-upgrader.io/claimed-by": "uid-of-nobody"})
    member(log, on=on)
    log.judge.judge_end(log.now)
    assert log.laws == laws


# ---- law 10


def test_law_10_a_new_controller_changes_a_node(log):
    node(log)
    log.judge.new_controller.watching = True
    node(log, by=Author.CONTROLLER)
    assert log.laws == [10]
