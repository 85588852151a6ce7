"""How many pods an owner should have now, from specs and statuses as their projects publish them."""

import pytest

from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.desired_replicas import _COUNTS, wanted_pods
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.core.workloads.owner_objects import Work

VERSIONS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "MPIJob": "kubeflow.org/v2beta1",
    "RayJob": "ray.io/v1",
    "RayCluster": "ray.io/v1",
    "StatefulSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "Workload": "kueue.x-k8s.io/v1beta1",
}


def work(kind, spec=None, status=None, *, name="x", by=None, labels=None, version=""):
    owner = Owner(kind=kind, name=name, uid=f"{kind}-{name}", api_version=version or VERSIONS[kind])
    controller = by.owner if by is not None else None
    return Work(
        owner=owner, namespace="ml", controller=controller, labels=labels or {}, spec=spec or {}, status=status or {}
    )


def count(top, *others):
    return wanted_pods(top, Chains([top, *others]))


JOBS = {
    "one pod, if nothing is said": ({}, {}, 1),
    "as many as run beside each other": ({"parallelism": 2, "completions": 2}, {}, 2),
    "those that succeeded are done": ({"parallelism": 2, "completions": 2}, {"succeeded": 1}, 1),
    "more to do than run beside each other": ({"parallelism": 2, "completions": 9}, {"succeeded": 3}, 2),
    "a work queue that empties": ({"parallelism": 3}, {"succeeded": 1}, 2),
    "finished": ({"parallelism": 1, "completions": 1}, {"succeeded": 1}, 0),
    "nonsense counts as unsaid": ({"parallelism": "2"}, {"succeeded": None}, 1),
}


@pytest.mark.parametrize(("spec", "status", "expected"), JOBS.values(), ids=JOBS.keys())
def test_a_job(spec, status, expected):
    assert count(work("Job", spec, status)) == expected


def part(name, replicas, parallelism):
    template = {"spec": {"parallelism": parallelism, "completions": parallelism, "template": {}}}
    return {"name": name, "replicas": replicas, "template": template}


SET = work("JobSet", {"replicatedJobs": [part("leader", 1, 1), part("workers", 2, 4)]})
LABEL = "jobset.sigs.k8s.io/replicatedjob-name"


def child(of, number, parallelism, **status):
    spec = {"parallelism": parallelism, "completions": parallelism}
    return work("Job", spec, status, name=f"{of}-{number}", by=SET, labels={LABEL: of})


def test_a_jobset_whose_jobs_are_yet_to_come():
    assert count(SET) == 9


def test_a_jobset_counts_its_jobs_as_they_are_and_the_rest_as_they_should_be():
    assert count(SET, child("leader", 0, 1, succeeded=1), child("workers", 0, 4, succeeded=1)) == 0 + 3 + 4


def test_a_trainjob_has_what_its_jobset_has():
    train = work("TrainJob", {"trainer": {"numNodes": 2}})
    below = work("JobSet", {"replicatedJobs": [part("node", 1, 2)]}, by=train)
    assert count(train, below) == 2


def test_an_mpijob_counts_launcher_and_workers_that_have_not_succeeded():
    spec = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 16}}}
    assert count(work("MPIJob", spec)) == 17
    assert (
        count(work("MPIJob", spec, {"replicaStatuses": {"Launcher": {"succeeded": 1}, "Worker": {"active": 16}}})) == 16
    )


RAY = {"headGroupSpec": {}, "workerGroupSpecs": [{"replicas": 3, "numOfHosts": 2}, {"replicas": 1}]}


def test_a_rayjob_counts_head_workers_and_submitter():
    job = work("RayJob", {"rayClusterSpec": RAY})
    submitter = work("Job", {"parallelism": 1}, by=job)
    assert count(job, submitter) == 1 + 7 + 1


def test_an_autoscaler_changes_the_cluster_only_so_that_one_counts():
    job = work("RayJob", {"rayClusterSpec": RAY})
    scaled = {"workerGroupSpecs": [{"replicas": 5}, {"replicas": 9, "suspend": True}]}
    assert count(job, work("RayCluster", scaled, by=job)) == 6
    assert count(work("RayCluster", {"suspend": True, **scaled})) == 0


def test_a_job_of_volcano_counts_its_tasks():
    spec = {"tasks": [{"name": "ps", "replicas": 2}, {"name": "worker", "replicas": 4}]}
    assert count(work("Job", spec, {"succeeded": 1}, version="batch.volcano.sh/v1alpha1")) == 5


def test_replicas():
    assert count(work("StatefulSet")) == 1
    assert count(work("StatefulSet", {"replicas": 0})) == 0
    assert count(work("LeaderWorkerSet", {"replicas": 3, "leaderWorkerTemplate": {"size": 4}})) == 12


def test_kinds_that_do_not_say_it():
    assert count(work("Workload", {"podSets": [{"count": 4}]})) == 0


def test_pods_of_each_owner_kind_can_be_counted():
    """A Workload of Kueue counts no pods: the owner below it does."""
    kinds = {f"{row.group}/{row.kind}" for row in OWNERS}
    assert kinds - set(_COUNTS) == {"kueue.x-k8s.io/Workload"}
