import pytest

from tests.support.owners import owner
from upgrader.api import names
from upgrader.core.workloads import suspend_patches
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.core.workloads.placement import Placement
from upgrader.core.workloads.suspend_patches import SuspendRecord, record_of, restart_patch, stop_patch, volcano_command

JOB = owner_kind("Job", "batch/v1")
STATEFUL = owner_kind("StatefulSet", "apps/v1")
VOLCANO = owner_kind("Job", "batch.volcano.sh/v1alpha1")
MARK = "gpu-upgrader.io/stopped"

RECORDS = {
    "a record": ('{"plan":"p","request":"r","previous":false}', SuspendRecord(plan="p", request="r", previous=False)),
    "of a release that recorded nothing before": ('{"plan":"p","request":"r"}', SuspendRecord(plan="p", request="r")),
    "with a number of replicas": (
        '{"plan":"p","request":"r","previous":4}',
        SuspendRecord(plan="p", request="r", previous=4),
    ),
    "of a release that knows more": ('{"plan":"p","request":"r","at":"now"}', SuspendRecord(plan="p", request="r")),
    "half written by somebody": ('{"plan":"p"}', None),
    "no JSON": ("yes", None),
}


@pytest.mark.parametrize(("text", "expected"), RECORDS.values(), ids=RECORDS)
def test_a_record_is_read_or_is_no_record(text, expected):
    assert record_of({MARK: text}) == expected


def test_without_the_annotation_there_is_no_record():
    assert record_of({}) is None


def test_replicas_are_recorded_and_come_back():
    body = owner(STATEFUL)
    stop = stop_patch(STATEFUL, body, "p", "r")
    assert stop == {
        "metadata": {"annotations": {MARK: '{"plan":"p","request":"r","previous":2}'}},
        "spec": {"replicas": 0},
    }
    stopped = {**body, "metadata": {**body["metadata"], **stop["metadata"]}, "spec": {**body["spec"], "replicas": 0}}
    assert restart_patch(STATEFUL, stopped, None) == {
        "metadata": {"annotations": {MARK: None}},
        "spec": {"replicas": 2},
    }


def test_somebody_who_scaled_it_meanwhile_keeps_the_number():
    body = owner(STATEFUL, annotations={MARK: '{"plan":"p","request":"r","previous":2}'})
    body["spec"]["replicas"] = 5
    assert restart_patch(STATEFUL, body, Placement(group="c")) == {"metadata": {"annotations": {MARK: None}}}


def test_a_template_that_is_so_already_is_not_written():
    body = owner(JOB, annotations={MARK: '{"plan":"p","request":"r","previous":false}'})
    body["spec"]["suspend"] = True
    assert restart_patch(JOB, body, Placement()) == {
        "metadata": {"annotations": {MARK: None}},
        "spec": {"suspend": False},
    }


def test_a_command_says_what_is_to_be_done_to_exactly_this_job():
    body = owner(VOLCANO, uid="u1")
    off, on = (volcano_command(VOLCANO, body, "request-1", on=on) for on in (False, True))
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "train",
        "uid": "u1",
        "controller": True,
    }
    assert (off["action"], on["action"], off["target"]) == ("AbortJob", "ResumeJob", target)
    assert off["metadata"]["name"] != on["metadata"]["name"]
    assert off == volcano_command(VOLCANO, body, "request-1", on=False), "so that it is not made twice"
    assert off["metadata"]["name"] != volcano_command(VOLCANO, body, "request-2", on=False)["metadata"]["name"]


def test_the_names_are_those_of_the_api():
    assert (suspend_patches.STOPPED, suspend_patches.FENCE) == (names.ANNOTATION_STOPPED, names.ANNOTATION_FENCE)
