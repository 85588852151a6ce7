"""The judge of chaos runs, laws 1 to 5: for each a log that keeps it, and one that breaks it, both written by hand."""

from datetime import timedelta

import pytest

from tests.support.written_log import (
    NAMESPACE,
    TAINT,
    Log,
    acknowledges,
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


@pytest.fixture
def log():
    return Log()


# ---- law 1


def test_a_gang_that_has_acknowledged_may_be_stopped(log):
    job(log)
    member(log)
    acknowledges(log)
    request(log)
    stop(log)
    assert log.laws == []


@pytest.mark.parametrize(
    "said", [{}, {"request": 6}, {"parked": False}], ids=["nothing", "another request", "it trains on"]
)
def test_law_1_a_gang_that_has_not_acknowledged_is_stopped(log, said):
    job(log)
    member(log)
    if said:
        acknowledges(log, **said)
    request(log)
    stop(log)
    assert log.laws == [1]


def test_law_1_members_that_acknowledge_different_steps_are_stopped(log):
    job(log)
    for number in (0, 1):
        member(log, f"gang-{number}")
        acknowledges(log, f"gang-{number}", step=number)
    request(log)
    stop(log)
    assert log.laws == [1]


def test_law_1_a_member_is_evicted(log):
    job(log)
    member(log)
    acknowledges(log)
    member(log, by=Author.CONTROLLER, deletionTimestamp="2026-11-21T09:01:00Z")
    assert log.laws == [1]


def test_law_1_a_node_is_upgraded_while_a_member_runs_there(log):
    member(log)
    upgrade(log)
    prepared(log)
    upgrade_job(log)
    assert log.laws == [1]


def test_a_pod_that_its_owner_makes_again_may_be_evicted(log):
    member(log, owner="ReplicaSet")
    bare = {"annotations": {}}
    member(log, owner="ReplicaSet", **bare)
    member(log, owner="ReplicaSet", by=Author.CONTROLLER, deletionTimestamp="2026-11-21T09:01:00Z", **bare)
    assert log.laws == []


def test_what_the_approval_names_may_be_ended(log):
    approval = {"limits": {"expendable": ["default/Job/gang"]}}
    log.put("UpgradePlan", "up", namespace="", spec={"approval": approval, "strategy": {"maxUnavailable": "100%"}})
    node(log)
    job(log)
    member(log)
    request(log)
    stop(log)
    assert log.laws == []


@pytest.mark.parametrize(("seconds", "laws"), [(30, []), (300, [1])], ids=["a slow read ago", "long ago"])
def test_what_a_plan_named_that_was_removed_while_it_was_read_may_be_ended(log, seconds, laws):
    approval = {"limits": {"expendable": ["default/Job/gang"]}}
    log.put("UpgradePlan", "up", namespace="", spec={"approval": approval, "strategy": {"maxUnavailable": "100%"}})
    node(log)
    job(log)
    member(log)
    log.gone("UpgradePlan", "up", namespace="")
    log.now += timedelta(seconds=seconds)
    member(log, by=Author.CONTROLLER, deletionTimestamp="2026-11-21T09:01:00Z")
    assert log.laws == laws


# ---- law 2


def test_a_prepared_node_may_be_upgraded(log):
    upgrade(log)
    prepared(log)
    upgrade_job(log)
    assert log.laws == []


@pytest.mark.parametrize(
    "forged", [{}, {"by": Author.WORLD}, {"namespace": "mallory"}], ids=["nobody", "somebody else", "elsewhere"]
)
def test_law_2_a_node_is_upgraded_that_was_not_prepared(log, forged):
    upgrade(log)
    if forged:
        prepared(log, **forged)
    upgrade_job(log)
    assert log.laws == [2]


def test_the_way_back_needs_no_preparation(log):
    upgrade(log)
    upgrade_job(log, "revert-v")
    assert log.laws == []


def test_law_2_a_gang_is_asked_before_its_node_is_prepared(log):
    upgrade(log)
    request(log, "Requested", group="c-1", members=[{"node": "gpu-0"}])
    assert log.laws == [2]


def test_a_node_that_has_what_the_plan_goes_to_needs_no_preparation(log):
    log.put("UpgradePlan", "up", namespace="", spec={"targetRevision": "new", "strategy": {"maxUnavailable": "100%"}})
    log.put("Node", "gpu-0", namespace="", metadata={"labels": {"gpu-upgrader.io/revision": "new"}}, spec={}, status={})
    request(log, "Requested", group="c-1", plan="up", members=[{"node": "gpu-0"}])
    assert log.laws == []


def test_a_late_request_is_judged_by_the_upgrades_that_were_there_when_it_was_sent(log):
    upgrade(log)
    prepared(log)
    log.gone("NodeUpgrade", "v", namespace="")
    log.late = 2
    request(log, "Requested", group="c-1", members=[{"node": "gpu-0"}])
    assert log.laws == []


def test_law_2_a_late_request_was_sent_before_its_node_was_prepared(log):
    upgrade(log)
    prepared(log)
    log.late = 2
    request(log, "Requested", group="c-1", members=[{"node": "gpu-0"}])
    assert log.laws == [2]


def test_law_2_a_late_request_was_sent_when_its_node_had_no_upgrade(log):
    prepared(log)
    upgrade(log)
    log.late = 2
    request(log, "Requested", group="c-1", members=[{"node": "gpu-0"}])
    assert log.laws == [2]


# ---- law 3


def test_law_3_a_cordon_is_taken_away(log):
    node(log, unschedulable=True)
    node(log, by=Author.CONTROLLER)
    assert log.laws == [3]


def test_law_3_a_taint_of_others_is_taken_away(log):
    node(log, taints=[{"key": "others", "effect": "NoExecute"}])
    node(log, by=Author.CONTROLLER)
    assert log.laws == [3]


def test_law_3_a_job_is_resumed_that_somebody_else_suspended(log):
    job(log)
    job(log, suspend=True)
    job(log, by=Author.CONTROLLER)
    assert log.laws == [3]


def test_law_3_an_annotation_of_others_is_changed(log):
    job(log, annotations={"team": "a"})
    job(log, by=Author.CONTROLLER)
    assert log.laws == [3]


# ---- law 4


@pytest.mark.parametrize(("allowed", "laws"), [(16, []), ("100%", []), (8, [4]), ("75%", [4])])
def test_law_4_more_is_taken_than_the_plan_may_take(log, allowed, laws):
    log.put("UpgradePlan", "up", namespace="", spec={"strategy": {"maxUnavailable": allowed}})
    upgrade(log, "Tainting")
    claim = {"gpu-upgrader.io/claimed-by": "uid-v"}
    for name in ("gpu-0", "gpu-1"):
        node(log, name)
    for name in ("gpu-0", "gpu-1"):
        node(log, name, by=Author.CONTROLLER, taints=[TAINT], annotations=claim)
    assert log.laws == laws


def test_law_4_members_on_other_nodes_count(log):
    log.put("UpgradePlan", "up", namespace="", spec={"strategy": {"maxUnavailable": 8}})
    node(log, "gpu-0")
    node(log, "gpu-1")
    job(log)
    for number in (0, 1):
        member(log, f"gang-{number}", on=f"gpu-{number}")
        acknowledges(log, f"gang-{number}")
    request(log)
    stop(log)
    assert log.laws == [4]


def test_a_pool_that_shrinks_after_the_batch_was_written_was_counted_before(log):
    claim = {"gpu-upgrader.io/claimed-by": "uid-v"}
    plan = {"namespace": "", "spec": {"strategy": {"maxUnavailable": "50%"}}}
    for name in ("gpu-0", "gpu-1"):
        node(log, name)
    log.put("UpgradePlan", "up", **plan)
    log.put("UpgradePlan", "up", by=Author.CONTROLLER, **plan, status={"phase": "Running", "batches": [{"number": 1}]})
    upgrade(log, "Tainting")
    log.gone("Node", "gpu-1", namespace="")
    node(log, "gpu-0", by=Author.CONTROLLER, taints=[TAINT], annotations=claim)
    assert log.laws == []


# ---- law 5


def test_law_5_a_gang_is_stopped_a_second_time(log):
    job(log)
    request(log)
    member(log)
    acknowledges(log)
    stop(log)
    job(log, by=Author.CONTROLLER)
    assert log.laws == []
    stop(log)
    assert log.laws == [5]


@pytest.mark.parametrize(("plan", "later"), [("", [5]), ("up", [5]), ("next", [])])
def test_law_5_a_gang_that_we_restarted_runs_on_mixed_drivers(log, plan, later):
    """Unless a later plan has brought the other driver: a member that fails by itself is made again where room is."""
    for name, version in (("gpu-0", "1.0"), ("gpu-1", "2.0")):
        meta = {
            "labels": {"gpu-upgrader.io/component": "driver"},
            "annotations": {"gpu-upgrader.io/readable": f"sim {version} 6.1.0"},
        }
        spec = {"nodeName": name}
        log.put("Pod", f"driver-{name}", namespace=NAMESPACE, metadata=meta, spec=spec, status={"phase": "Running"})
    job(log)
    request(log)
    stop(log)
    job(log, by=Author.CONTROLLER)
    member(log, "gang-0", on="gpu-0")
    if plan:
        spec = {"plan": plan, "node": {"name": "gpu-1"}, "target": {"driverVersion": "2.0"}}
        log.put("NodeUpgrade", "v-2", by=Author.CONTROLLER, namespace="", spec=spec, status={"phase": "Succeeded"})
    before = log.laws
    member(log, "gang-1", on="gpu-1")
    assert log.laws == before + later


def stop_of_a_group(log, *, fellow="Stopping", pod="", **meta):
    """A gang of a group is stopped, beside a fellow in some phase, and a pod with GPUs where one is named."""
    job(log)
    member(log)
    acknowledges(log)
    upgrade(log, "Draining")
    request(log, group="c-1", owner={"uid": "uid-gang"})
    spec = {"group": "c-1", "gang": "default/Job/fellow", "owner": {"uid": "uid-fellow"}}
    status = {"phase": fellow, "deadline": "2026-11-21T10:00:00Z"}
    log.put("CheckpointRequest", "request-2", by=Author.CONTROLLER, spec=spec, status=status)
    if pod:
        references = [{"kind": "Job", "name": pod, "uid": f"uid-{pod}", "controller": True}]
        member(log, f"{pod}-0", ownerReferences=references, **meta)
    stop(log)


def test_gangs_of_a_group_are_stopped_together(log):
    stop_of_a_group(log, pod="fellow")
    assert log.laws == []


def test_law_5_a_gang_is_stopped_whose_fellow_was_released(log):
    stop_of_a_group(log, fellow="Withdrawn")
    assert log.laws == [5]


def test_law_5_a_gang_is_stopped_while_another_pod_keeps_its_node(log):
    stop_of_a_group(log, pod="stranger")
    assert log.laws == [5]


def test_a_pod_on_its_way_out_keeps_no_node(log):
    stop_of_a_group(log, pod="stranger", deletionTimestamp="2026-11-21T09:01:00Z")
    assert log.laws == []
