"""The judge of chaos runs: for each law a log that keeps it, and one that breaks it, both written by hand."""

import json
from datetime import timedelta

import pytest

from tests.support.world import START
from upgrader.simulate.chaos.journal import Author, Entry
from upgrader.simulate.chaos.judge import Judge
from upgrader.simulate.cluster.trainers import ACK

OURS = "gpu-upgrader-system"
TAINT = {"key": "gpu-upgrader.io/maintenance", "value": "c-1", "effect": "NoSchedule"}
RECORD = {"gpu-upgrader.io/stopped": json.dumps({"plan": "up", "request": "talk"})}


class Log:
    """Writes entries one after the other, each a second after the one before."""

    def __init__(self):
        self.files = {}
        self.judge = Judge(self.files, dict)
        self.objects = {}
        self.now = START

    def put(self, kind, name, *, by=Author.WORLD, namespace="default", api="v1", **parts):
        self._entry(kind, namespace, name, by, {"apiVersion": api, "kind": kind, **parts})

    def gone(self, kind, name, *, by=Author.WORLD, namespace="default"):
        self._entry(kind, namespace, name, by, None)

    def _entry(self, kind, namespace, name, by, after):
        self.now += timedelta(seconds=1)
        key = kind, namespace, name
        before = self.objects.get(key)
        if after is not None:
            after["metadata"] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"} | after.get("metadata", {})
        self.objects[key] = after
        verb = "merge" if by is Author.CONTROLLER else ""
        sent = self.now if verb else None
        self.judge.read(Entry(at=self.now, kind=kind, author=by, verb=verb, before=before, after=after, sent=sent))

    @property
    def laws(self):
        return [one.law for one in self.judge.violations]


@pytest.fixture
def log():
    return Log()


def node(log, name="gpu-0", by=Author.WORLD, *, taints=(), annotations=None, **spec):
    capacity = {"capacity": {"nvidia.com/gpu": "8"}}
    meta = {"annotations": annotations or {}}
    log.put("Node", name, by=by, namespace="", metadata=meta, spec={"taints": list(taints), **spec}, status=capacity)


def job(log, *, suspend=False, by=Author.WORLD, annotations=None):
    meta = {"annotations": annotations or {}}
    log.put("Job", "gang", by=by, api="batch/v1", metadata=meta, spec={"suspend": suspend})


def member(log, name="gang-0", *, owner="Job", phase="Running", on="gpu-0", asked="7", by=Author.WORLD, **meta):
    references = [{"kind": owner, "name": "gang", "uid": "uid-gang", "controller": True}]
    annotations = {"gpu-upgrader.io/checkpoint-method": "file", "gpu-upgrader.io/checkpoint-request": asked}
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    log.put(
        "Pod",
        name,
        by=by,
        metadata={"ownerReferences": references, "annotations": annotations, **meta},
        spec={"nodeName": on, "containers": [container]},
        status={"phase": phase},
    )


def acknowledges(log, name="gang-0", *, request=7, step=5, parked=True):
    said = {"requestId": request, "podUid": f"uid-{name}", "step": step, "parked": parked}
    log.files[f"uid-{name}", ACK] = json.dumps(said).encode()


def talk(log, phase="Stopping", by=Author.CONTROLLER, deadline="2026-11-21T10:00:00Z", **spec):
    log.put("CheckpointRequest", "talk", by=by, spec=spec, status={"phase": phase, "deadline": deadline})


def visit(log, phase="Visiting", *, plan="up", deadline="2026-11-21T10:00:00Z", by=Author.CONTROLLER, **status):
    spec = {"plan": plan, "closure": "c-1", "node": {"name": "gpu-0"}}
    log.put("NodeUpgrade", "v", by=by, namespace="", spec=spec, status={"phase": phase, "deadline": deadline, **status})


def prepared(log, by=Author.CONTROLLER, namespace=OURS):
    meta = {
        "labels": {"gpu-upgrader.io/component": "prepare"},
        "annotations": {"gpu-upgrader.io/node-upgrade": "v"},
    }
    log.put("Pod", "prepare-v", by=by, namespace=namespace, metadata=meta, spec={}, status={"phase": "Pending"})
    log.put("Pod", "prepare-v", namespace=namespace, metadata=meta, spec={}, status={"phase": "Succeeded"})


def visit_job(log, name="visit-v"):
    meta = {
        "labels": {"gpu-upgrader.io/component": "visit"},
        "annotations": {"gpu-upgrader.io/node-upgrade": "v"},
    }
    spec = {"template": {"spec": {"nodeName": "gpu-0"}}}
    log.put("Job", name, by=Author.CONTROLLER, namespace=OURS, api="batch/v1", metadata=meta, spec=spec)


def stop(log):
    job(log, suspend=True, by=Author.CONTROLLER, annotations=RECORD)


# ---- law 1


def test_a_gang_that_has_acknowledged_may_be_stopped(log):
    job(log)
    member(log)
    acknowledges(log)
    talk(log)
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
    talk(log)
    stop(log)
    assert log.laws == [1]


def test_law_1_members_that_acknowledge_different_steps_are_stopped(log):
    job(log)
    for number in (0, 1):
        member(log, f"gang-{number}")
        acknowledges(log, f"gang-{number}", step=number)
    talk(log)
    stop(log)
    assert log.laws == [1]


def test_law_1_a_member_is_evicted(log):
    job(log)
    member(log)
    acknowledges(log)
    member(log, by=Author.CONTROLLER, deletionTimestamp="2026-11-21T09:01:00Z")
    assert log.laws == [1]


def test_law_1_a_node_is_visited_while_a_member_runs_there(log):
    member(log)
    visit(log)
    prepared(log)
    visit_job(log)
    assert log.laws == [1]


def test_a_pod_that_its_owner_makes_again_may_be_evicted(log):
    member(log, owner="ReplicaSet")
    bare = {"annotations": {}}
    member(log, owner="ReplicaSet", **bare)
    member(log, owner="ReplicaSet", by=Author.CONTROLLER, deletionTimestamp="2026-11-21T09:01:00Z", **bare)
    assert log.laws == []


def test_what_the_approval_names_may_be_ended(log):
    approval = {"envelope": {"expendable": ["default/Job/gang"]}}
    log.put("UpgradePlan", "up", namespace="", spec={"approval": approval, "strategy": {"maxUnavailable": "100%"}})
    node(log)
    job(log)
    member(log)
    talk(log)
    stop(log)
    assert log.laws == []


# ---- law 2


def test_a_prepared_node_may_be_visited(log):
    visit(log)
    prepared(log)
    visit_job(log)
    assert log.laws == []


@pytest.mark.parametrize(
    "forged", [{}, {"by": Author.WORLD}, {"namespace": "mallory"}], ids=["nobody", "somebody else", "elsewhere"]
)
def test_law_2_a_node_is_visited_that_was_not_prepared(log, forged):
    visit(log)
    if forged:
        prepared(log, **forged)
    visit_job(log)
    assert log.laws == [2]


def test_the_way_back_needs_no_preparation(log):
    visit(log)
    visit_job(log, "revert-v")
    assert log.laws == []


def test_law_2_a_gang_is_asked_before_its_node_is_prepared(log):
    visit(log)
    talk(log, "Asking", closure="c-1", members=[{"node": "gpu-0"}])
    assert log.laws == [2]


def test_a_node_that_has_what_the_plan_goes_to_needs_no_preparation(log):
    log.put("UpgradePlan", "up", namespace="", spec={"targetRevision": "new", "strategy": {"maxUnavailable": "100%"}})
    log.put("Node", "gpu-0", namespace="", metadata={"labels": {"gpu-upgrader.io/revision": "new"}}, spec={}, status={})
    talk(log, "Asking", closure="c-1", plan="up", members=[{"node": "gpu-0"}])
    assert log.laws == []


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
    visit(log, "Closing")
    claim = {"gpu-upgrader.io/visit": "uid-v"}
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
    talk(log)
    stop(log)
    assert log.laws == [4]


def test_a_pool_that_shrinks_after_the_batch_was_written_was_counted_before(log):
    claim = {"gpu-upgrader.io/visit": "uid-v"}
    plan = {"namespace": "", "spec": {"strategy": {"maxUnavailable": "50%"}}}
    for name in ("gpu-0", "gpu-1"):
        node(log, name)
    log.put("UpgradePlan", "up", **plan)
    log.put("UpgradePlan", "up", by=Author.CONTROLLER, **plan, status={"phase": "Running", "batches": [{"number": 1}]})
    visit(log, "Closing")
    log.gone("Node", "gpu-1", namespace="")
    node(log, "gpu-0", by=Author.CONTROLLER, taints=[TAINT], annotations=claim)
    assert log.laws == []


# ---- law 5


def test_law_5_a_gang_is_stopped_a_second_time(log):
    job(log)
    talk(log)
    member(log)
    acknowledges(log)
    stop(log)
    job(log, by=Author.CONTROLLER)
    assert log.laws == []
    stop(log)
    assert log.laws == [5]


def test_law_5_a_gang_that_we_restarted_runs_on_mixed_drivers(log):
    for name, version in (("gpu-0", "1.0"), ("gpu-1", "2.0")):
        meta = {
            "labels": {"gpu-upgrader.io/component": "driver"},
            "annotations": {"gpu-upgrader.io/readable": f"sim {version} 6.1.0"},
        }
        spec = {"nodeName": name}
        log.put("Pod", f"driver-{name}", namespace=OURS, metadata=meta, spec=spec, status={"phase": "Running"})
    job(log)
    talk(log)
    stop(log)
    job(log, by=Author.CONTROLLER)
    member(log, "gang-0", on="gpu-0")
    assert log.laws == []
    member(log, "gang-1", on="gpu-1")
    assert log.laws == [5]


def stop_of_a_closure(log, *, fellow="Stopping", pod="", **meta):
    """A gang of a closure is stopped, beside a fellow in some phase, and a pod with GPUs where one is named."""
    job(log)
    member(log)
    acknowledges(log)
    visit(log, "Draining")
    talk(log, closure="c-1", owner={"uid": "uid-gang"})
    spec = {"closure": "c-1", "gang": "default/Job/fellow", "owner": {"uid": "uid-fellow"}}
    status = {"phase": fellow, "deadline": "2026-11-21T10:00:00Z"}
    log.put("CheckpointRequest", "talk-2", by=Author.CONTROLLER, spec=spec, status=status)
    if pod:
        references = [{"kind": "Job", "name": pod, "uid": f"uid-{pod}", "controller": True}]
        member(log, f"{pod}-0", ownerReferences=references, **meta)
    stop(log)


def test_gangs_of_a_closure_are_stopped_together(log):
    stop_of_a_closure(log, pod="fellow")
    assert log.laws == []


def test_law_5_a_gang_is_stopped_whose_fellow_was_let_go(log):
    stop_of_a_closure(log, fellow="Withdrawn")
    assert log.laws == [5]


def test_law_5_a_gang_is_stopped_while_another_pod_keeps_its_node(log):
    stop_of_a_closure(log, pod="stranger")
    assert log.laws == [5]


def test_a_pod_on_its_way_out_keeps_no_node(log):
    stop_of_a_closure(log, pod="stranger", deletionTimestamp="2026-11-21T09:01:00Z")
    assert log.laws == []


# ---- law 6


def test_law_6_a_visit_never_has_a_step(log):
    made = {"metadata": {"creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": {"node": {"name": "gpu-0"}}}
    log.put("NodeUpgrade", "v", by=Author.CONTROLLER, namespace="", **made)
    log.judge.look(START + timedelta(minutes=10))
    assert log.laws == []
    log.judge.look(START + timedelta(minutes=20))
    assert log.laws == [6]


def test_law_6_a_phase_is_entered_without_a_deadline(log):
    visit(log, "Draining", deadline=None)
    assert log.laws == [6]


def test_law_6_a_phase_is_not_left_when_its_deadline_has_passed(log):
    visit(log, "Draining")
    log.judge.look(START + timedelta(hours=1, minutes=10))
    assert log.laws == []
    log.judge.look(START + timedelta(hours=2))
    assert log.laws == [6]


def test_law_6_a_plan_does_not_end(log):
    log.put("UpgradePlan", "up", namespace="", status={"phase": "Aborting"})
    log.judge.end(log.now)
    assert log.laws == [6]


# ---- law 7


def test_law_7_a_gang_is_stopped_without_a_record(log):
    job(log)
    job(log, suspend=True, by=Author.CONTROLLER)
    assert log.laws == [7]


def test_law_7_a_gang_is_stopped_before_the_intent_is_written(log):
    job(log)
    talk(log, "Parked")
    stop(log)
    assert log.laws == [7]


def test_law_7_a_node_is_closed_for_a_visit_that_is_not_there(log):
    node(log)
    node(log, by=Author.CONTROLLER, taints=[TAINT], annotations={"gpu-upgrader.io/visit": "uid-of-nobody"})
    assert log.laws == [7]


def test_law_7_a_node_is_worked_on_before_the_intent_is_written(log):
    visit(log, "Off")
    prepared(log)
    visit_job(log)
    assert log.laws == [7]


# ---- law 8


def test_law_8_a_visit_begins_in_doubt(log):
    log.judge.doubt.in_doubt = lambda: "nodes are out of step"
    visit(log, "Pending")
    assert log.laws == [8]


def test_law_8_two_visits_work_on_a_node(log):
    labels = {"labels": {"gpu-upgrader.io/component": "visit"}}
    first = {"metadata": labels, "spec": {"nodeName": "gpu-0"}, "status": {"phase": "Running"}}
    visit(log)
    log.put("Pod", "visit-v-0", namespace=OURS, **first)
    visit_job(log, "revert-v")
    assert log.laws == [8]


@pytest.mark.parametrize(("driver", "laws"), [("key", [8]), ("none", [])])
def test_law_8_a_visit_would_go_back_to_none(log, driver, laws):
    labels = {"gpu-upgrader.io/driver": driver}
    log.put("Node", "gpu-0", namespace="", metadata={"labels": labels}, spec={}, status={})
    visit(log, "Pending")
    assert log.laws == laws


# ---- law 9


def test_law_9_a_gang_is_never_restarted(log):
    job(log)
    talk(log)
    stop(log)
    talk(log, "Ended")
    log.judge.end(log.now)
    assert log.laws == [9, 9]
    assert [one.sentence for one in log.judge.violations] == [
        "gang gang is still stopped",
        "Job gang carries the record of a stop",
    ]


def test_law_9_a_node_is_never_given_back(log):
    node(log, taints=[TAINT], annotations={"gpu-upgrader.io/visit": "uid-v"})
    log.judge.end(log.now)
    assert log.laws == [9, 9]


def test_a_node_whose_way_back_failed_waits_for_a_person(log):
    node(log, taints=[TAINT], annotations={"gpu-upgrader.io/visit": "uid-v"})
    visit(log, "Failed", reason="RevertFailed")
    log.judge.end(log.now)
    assert log.laws == []


def test_law_9_a_member_is_still_asked(log):
    member(log, asked="")
    member(log, by=Author.CONTROLLER)
    log.judge.end(log.now)
    assert log.laws == [9]


def test_a_pod_that_somebody_else_marked_is_his(log):
    member(log)
    log.judge.end(log.now)
    assert log.laws == []


@pytest.mark.parametrize(("on", "laws"), [("gpu-0", []), ("gpu-1", [9, 9])])
def test_a_node_whose_visit_was_removed_waits_for_the_work_on_it(log, on, laws):
    node(log, taints=[TAINT], annotations={"gpu-upgrader.io/visit": "uid-of-nobody"})
    member(log, on=on)
    log.judge.end(log.now)
    assert log.laws == laws


# ---- law 10


def test_law_10_a_new_controller_changes_a_node(log):
    node(log)
    log.judge.new_controller.watching = True
    node(log, by=Author.CONTROLLER)
    assert log.laws == [10]
