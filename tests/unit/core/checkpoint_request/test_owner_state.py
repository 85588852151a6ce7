"""What the request believes of an owner, by what stands in it."""

import pytest

from tests.support.owners import owner
from upgrader.core.checkpoint_request.owner_state import owner_facts
from upgrader.core.checkpoint_request.request_state import OwnerFacts
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader_dev.simulated.apiserver.objects import apply_merge_patch

STOPPED = {"metadata": {"annotations": {"gpu-upgrader.io/stopped": '{"plan":"p","request":"r1","previous":null}'}}}


def conditions(**said):
    return {"status": {"conditions": [{"type": name, "status": status} for name, status in said.items()]}}


CASES = {
    "a Job that runs": (
        "Job batch/v1",
        {"status": {"active": 2, "succeeded": 0}},
        OwnerFacts(active=2, wanted=2),
    ),
    "a Job of which one member has succeeded": (
        "Job batch/v1",
        {"status": {"active": 1, "succeeded": 1}},
        OwnerFacts(active=1, wanted=1),
    ),
    "a Job that we stopped, one pod still ending": (
        "Job batch/v1",
        {**STOPPED, "spec": {"suspend": True}, "status": {"active": 0, "terminating": 1}},
        OwnerFacts(suspended=True, stopped_by="r1", active=1, wanted=2),
    ),
    "a Job that has ended": ("Job batch/v1", conditions(Complete="True"), OwnerFacts(finished=True, wanted=2)),
    "a Job that has not": ("Job batch/v1", conditions(Complete="False"), OwnerFacts(wanted=2)),
    "a JobSet that we stopped, its controller silent": (
        "JobSet jobset.x-k8s.io/v1alpha2",
        {**STOPPED, "spec": {"suspend": True}},
        OwnerFacts(suspended=True, stopped_by="r1", unconfirmed=True, wanted=3),
    ),
    "a JobSet that we stopped, one of its jobs still active": (
        "JobSet jobset.x-k8s.io/v1alpha2",
        {
            **STOPPED,
            "spec": {"suspend": True},
            "status": {
                "conditions": [{"type": "Suspended", "status": "True"}],
                "replicatedJobsStatus": [{"name": "workers", "active": 1}],
            },
        },
        OwnerFacts(suspended=True, stopped_by="r1", active=1, wanted=3),
    ),
    "a Workload whose eviction is confirmed": (
        "Workload kueue.x-k8s.io/v1beta1",
        {**STOPPED, "spec": {"active": False}, **conditions(Evicted="True")},
        OwnerFacts(suspended=True, stopped_by="r1", wanted=3),
    ),
    "a Workload that waits in its queue": (
        "Workload kueue.x-k8s.io/v1beta2",
        {"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "no quota left"}]}},
        OwnerFacts(wanted=3, queued="its queue has not admitted it (no quota left)"),
    ),
    "a Workload that runs": (
        "Workload kueue.x-k8s.io/v1beta1",
        conditions(QuotaReserved="True", Admitted="True"),
        OwnerFacts(wanted=3),
    ),
    "a StatefulSet that somebody else scaled to nothing": (
        "StatefulSet apps/v1",
        {"spec": {"replicas": 0}, "status": {"replicas": 1}},
        OwnerFacts(suspended=True, active=1),
    ),
    "a RayJob whose cluster is being deleted": (
        "RayJob ray.io/v1",
        {**STOPPED, "spec": {"suspend": True}, "status": {"jobDeploymentStatus": "Suspending"}},
        OwnerFacts(suspended=True, stopped_by="r1", unconfirmed=True, wanted=3),
    ),
    "a RayJob that failed": (
        "RayJob ray.io/v1",
        {"status": {"jobDeploymentStatus": "Failed"}},
        OwnerFacts(finished=True, wanted=3),
    ),
    "a Volcano job that was told to abort and has not begun to": (
        "Job batch.volcano.sh/v1alpha1",
        {**STOPPED, "status": {"state": {"phase": "Running"}, "running": 2}},
        OwnerFacts(stopped_by="r1", ordered=True, active=2, wanted=3),
    ),
    "a Volcano job that is aborting": (
        "Job batch.volcano.sh/v1alpha1",
        {**STOPPED, "status": {"state": {"phase": "Aborting"}, "terminating": 2}},
        OwnerFacts(suspended=True, stopped_by="r1", unconfirmed=True, active=2, wanted=3),
    ),
    "a Volcano job that is aborted": (
        "Job batch.volcano.sh/v1alpha1",
        {**STOPPED, "status": {"state": {"phase": "Aborted"}}},
        OwnerFacts(suspended=True, stopped_by="r1", wanted=3),
    ),
    "a Volcano job that waits": (
        "Job batch.volcano.sh/v1alpha1",
        {"status": {"state": {"phase": "Pending"}, "pending": 2}},
        OwnerFacts(active=2, wanted=3, queued="its queue has not scheduled it"),
    ),
}


@pytest.mark.parametrize(("kind", "changes", "expected"), CASES.values(), ids=CASES)
def test_an_owner_is_seen_as_it_says(kind, changes, expected):
    row = owner_kind(*kind.split())
    assert owner_facts(row, apply_merge_patch(owner(row, uid="u1"), changes), "u1", 3) == expected


def test_another_object_of_its_name_is_none():
    row = owner_kind("Job", "batch/v1")
    gone = OwnerFacts(present=False)
    assert owner_facts(row, owner(row, uid="u2"), "u1", 3) == owner_facts(row, None, "u1", 3) == gone


@pytest.mark.parametrize("odd", [{"spec": None, "status": []}, {"status": {"conditions": "none"}}, {"status": None}])
def test_what_is_odd_on_the_wire_confirms_nothing(odd):
    row = owner_kind("JobSet", "jobset.x-k8s.io/v1alpha2")
    facts = owner_facts(row, {"metadata": {"uid": "u1"}, **odd}, "u1", 3)
    assert facts == OwnerFacts(wanted=3)
