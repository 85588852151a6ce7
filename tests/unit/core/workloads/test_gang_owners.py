"""Gangs of all owners: what is switched off for them, and how many members they should have."""

import pytest

from tests.support.facts import member
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.gang_rules import PodMetadata, UserRule, rules_of
from upgrader.core.workloads.gangs import PodFacts, gangs_of
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import Work

FILE = CheckpointAnnotations(method="file")
GROUPS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "MPIJob": "kubeflow.org/v2beta1",
    "RayJob": "ray.io/v1",
    "RayCluster": "ray.io/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "Workload": "kueue.x-k8s.io/v1beta1",
    "Pod": "v1",
}
ADMITTED = {"conditions": [{"type": "Admitted", "status": "True"}]}


def owner(kind, name="x"):
    return Owner(kind=kind, name=name, uid=f"{kind}-{name}", api_version=GROUPS[kind])


def work(kind, name="x", *, by=None, spec=None, status=None, declared=None, of=()):
    references = (by, *of) if by is not None else of
    return Work(
        owner=owner(kind, name),
        namespace="ml",
        controller=by,
        owned_by=tuple(one.uid for one in references),
        spec=spec or {},
        status=status or {},
        declared=declared or CheckpointAnnotations(),
    )


def pod(name, controller=None, *, labels=None, annotations=None, declared=FILE, total=0, **changes):
    facts = member(name, f"node-{name}", labels=labels or {}, **changes)
    metadata = PodMetadata(
        pod=name,
        uid=facts.uid,
        namespace="ml",
        labels=labels or {},
        annotations=annotations or {},
        controller=controller,
    )
    return PodFacts(member=facts, metadata=metadata, declared=declared, group_total=total)


def seen(pods, *works, rules=()):
    controllers = {one.metadata.uid: one.metadata.controller for one in pods}
    found = gangs_of(pods, Chains(works, controllers), {}, rules_of(rules))
    return [
        (
            gang.name,
            f"{gang.owner.kind} {gang.owner.name}" if gang.owner is not None else gang.cannot_stop,
            len(gang.members),
            gang.wanted,
        )
        for gang in found
    ]


TEMPLATE = {"spec": {"parallelism": 2, "completions": 2}}
SET = work("JobSet", spec={"replicatedJobs": [{"name": "node", "replicas": 1, "template": TEMPLATE}]})
UNDER = work("JobSet", by=owner("TrainJob"), spec=SET.spec)
NODE = work("Job", "x-node-0", by=owner("JobSet"), spec=TEMPLATE["spec"])
TRAIN = work("TrainJob")
PAIR = [pod(f"p-{number}", owner("Job", "x-node-0")) for number in range(2)]
MPI = {"training.kubeflow.org/job-name": "x"}


def workload(*of, status=ADMITTED, **spec):
    return work("Workload", "w", of=of, status=status, spec=spec)


CASES = {
    "a JobSet, never a Job of it": ([PAIR, SET, NODE], [("ml/JobSet/x", "JobSet x", 2, 2)]),
    "a TrainJob, never the JobSet of it": ([PAIR, TRAIN, UNDER, NODE], [("ml/TrainJob/x", "TrainJob x", 2, 2)]),
    "an admitted Workload before all": (
        [PAIR, TRAIN, UNDER, NODE, workload(owner("TrainJob"))],
        [("ml/TrainJob/x", "Workload w", 2, 2)],
    ),
    "a Workload that is not admitted says nothing about what runs": (
        [PAIR, SET, NODE, workload(owner("JobSet"), status={})],
        [
            (
                "ml/JobSet/x",
                "Kueue has not admitted its Workload w, so its state is not known.",
                2,
                2,
            )
        ],
    ),
    "nor one that is switched off": (
        [PAIR, SET, NODE, workload(owner("JobSet"), active=False)],
        [
            (
                "ml/JobSet/x",
                "Kueue has not admitted its Workload w, so its state is not known.",
                2,
                2,
            )
        ],
    ),
    "plain pods that Kueue admits together": (
        [
            [
                pod(f"p-{number}", labels={"kueue.x-k8s.io/pod-group-name": "g"}, total=4, phase=phase)
                for number, phase in enumerate(("Running", "Running", "Succeeded"))
            ],
            workload(*(Owner(kind="Pod", name=f"p-{number}", uid=f"uid-p-{number}") for number in range(3))),
        ],
        [
            (
                "ml/pod-group/g",
                (
                    "Its pods have no controller that would create them again. Kueue deletes them when Workload w is "
                    "deactivated."
                ),
                2,
                3,
            )
        ],
    ),
    "pods of a ReplicaSet that Kueue admits together": (
        [
            [
                pod(f"p-{number}", owner("ReplicaSet"), labels={"kueue.x-k8s.io/pod-group-name": "g"}, total=2)
                for number in range(2)
            ],
            workload(*(Owner(kind="Pod", name=f"p-{number}", uid=f"uid-p-{number}") for number in range(2))),
        ],
        [("ml/pod-group/g", "Workload w", 2, 2)],
    ),
    "an MPIJob with its launcher": (
        [
            [
                pod("w-0", owner("MPIJob"), labels=MPI),
                pod("w-1", owner("MPIJob"), labels=MPI),
                pod("launcher", owner("Job", "x-launcher"), labels=MPI, gpus=0),
            ],
            work("MPIJob", spec={"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}}),
            work("Job", "x-launcher", by=owner("MPIJob")),
        ],
        [("ml/MPIJob/x", "MPIJob x", 3, 3)],
    ),
    "a RayJob with its cluster and its submitter": (
        [
            [
                pod("head", owner("RayCluster", "x-raw")),
                pod("worker", owner("RayCluster", "x-raw")),
                pod("submit", owner("Job", "x-submit"), gpus=0),
            ],
            work("RayJob"),
            work("RayCluster", "x-raw", by=owner("RayJob"), spec={"workerGroupSpecs": [{"replicas": 1}]}),
            work("Job", "x-submit", by=owner("RayJob")),
        ],
        [("ml/RayJob/x", "RayJob x", 3, 3)],
    ),
    "a StatefulSet that declares how it is asked": (
        [[pod("x-0", owner("StatefulSet"))], work("StatefulSet", spec={"replicas": 2})],
        [("ml/StatefulSet/x", "StatefulSet x", 1, 2)],
    ),
    "a StatefulSet that does so itself": (
        [[pod("x-0", owner("StatefulSet"), declared=CheckpointAnnotations())], work("StatefulSet", declared=FILE)],
        [("ml/StatefulSet/x", "StatefulSet x", 1, 1)],
    ),
    "one that says nothing is evicted": (
        [
            [pod("x-0", owner("StatefulSet"), declared=CheckpointAnnotations())],
            work("StatefulSet", spec={"replicas": 2}),
        ],
        [("ml/StatefulSet/x", "", 1, 1)],
    ),
    "Jobs that the gang label groups have no one switch": (
        [
            [pod(f"{name}-0", owner("Job", name), labels={"run": "7"}) for name in "ab"],
            work("Job", "a"),
            work("Job", "b"),
        ],
        [
            (
                "ml/label/run=7",
                "run=7 has pods of several owners (Job a, Job b), which cannot be suspended together.",
                2,
                2,
            )
        ],
    ),
}


@pytest.mark.parametrize(("known", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_switched_off_for_a_gang(known, expected):
    pods, *works = known
    assert seen(pods, *works, rules=[UserRule(label="run")]) == expected
    assert seen(pods[::-1], *works[::-1], rules=[UserRule(label="run")]) == expected


def served(group, index, controller, **changes):
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "x",
        "leaderworkerset.sigs.k8s.io/group-key": f"key-{group}",
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
    }
    return pod(f"x-{group}" if not index else f"x-{group}-{index}", controller, labels=labels, **changes)


def lws(declared):
    """Two groups of two: leaders of one StatefulSet, whose pods own the StatefulSets of the workers."""
    pods = []
    works = [
        work("LeaderWorkerSet", spec={"replicas": 2, "leaderWorkerTemplate": {"size": 2}}),
        work("StatefulSet", by=owner("LeaderWorkerSet")),
    ]
    for group in range(2):
        leader = served(group, 0, owner("StatefulSet"), declared=declared)
        pods.append(leader)
        made_by = Owner(kind="Pod", name=leader.metadata.pod, uid=leader.metadata.uid, api_version="v1")
        works.append(work("StatefulSet", f"x-{group}", by=made_by))
        pods.append(served(group, 1, owner("StatefulSet", f"x-{group}"), declared=declared))
    return pods, works


def test_groups_of_a_leaderworkerset_that_is_asked_are_one_gang_since_they_have_one_switch():
    pods, works = lws(FILE)
    assert seen(pods, *works) == [("ml/LeaderWorkerSet/x", "LeaderWorkerSet x", 4, 4)]


def test_groups_of_one_that_is_not_asked_are_evicted_apart():
    pods, works = lws(CheckpointAnnotations())
    assert seen(pods, *works) == [("ml/LeaderWorkerSet/x-0", "", 2, 2), ("ml/LeaderWorkerSet/x-1", "", 2, 2)]
    assert all(gang.replicated for gang in gangs_of(pods, Chains(works, {}), {}))
