"""Who belongs together: each rule, and which of them comes first."""

import pytest

from upgrader.core.errors import ConfigurationError
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.gang_rules import Belonging, PodMetadata, UserRule, resolve_gang, rules_of
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import Work

JOB = Owner(kind="Job", name="big-node-0", uid="u-job")
JOBSET = Owner(kind="JobSet", name="big", uid="u-set", api_version="jobset.x-k8s.io/v1alpha2")
TRAINJOB = Owner(kind="TrainJob", name="big", uid="u-train", api_version="trainer.kubeflow.org/v1alpha1")
MPIJOB = Owner(kind="MPIJob", name="pi", uid="u-mpi", api_version="kubeflow.org/v2beta1")
TORCH = Owner(kind="PyTorchJob", name="net", uid="u-torch", api_version="kubeflow.org/v1")
RAYJOB = Owner(kind="RayJob", name="ray", uid="u-rayjob", api_version="ray.io/v1")
RAYCLUSTER = Owner(kind="RayCluster", name="ray-abcde", uid="u-ray", api_version="ray.io/v1")
STATEFULSET = Owner(kind="StatefulSet", name="db", uid="u-sts", api_version="apps/v1")
CRON = Owner(kind="CronJob", name="nightly", uid="u-cron")


def work(owner, controller=None):
    return Work(owner=owner, namespace="ml", controller=controller)


def under(*owners):
    return Chains(work(one, above) for one, above in zip(owners, (*owners, None)[1:], strict=True))


def metadata(controller=None, scheduling_group="", labels=None, **annotations):
    return PodMetadata(
        pod="p-0",
        uid="u-pod",
        namespace="ml",
        labels=labels or {},
        annotations=annotations,
        scheduling_group=scheduling_group,
        controller=controller,
    )


def group(criterion, value, because):
    return Belonging(key=(criterion, value), kind="pod-group", name=value, because=because)


RAY = Belonging(key=("TopOwner", "u-rayjob"), kind="RayJob", name="ray", because="the same topmost owner (RayJob ray)")
LWS = {
    "leaderworkerset.sigs.k8s.io/name": "serve",
    "leaderworkerset.sigs.k8s.io/group-index": "1",
    "leaderworkerset.sigs.k8s.io/group-key": "5d0e",
}
RUN = UserRule(label="example.org/run")
EXPECTED = {
    "a label of the stack's owner": (
        metadata(JOB, labels={"example.org/run": "42"}),
        under(JOB),
        Belonging(
            key=("UserLabel", "example.org/run=42"),
            kind="label",
            name="example.org/run=42",
            because="label example.org/run=42 (a rule of the stack)",
        ),
    ),
    "a PodGroup": (
        metadata(JOB, scheduling_group="g"),
        under(JOB),
        group("PodGroup", "g", "schedulingGroup g (PodGroup)"),
    ),
    "a Workload of Kueue": (
        metadata(JOB, **{"kueue.x-k8s.io/workload": "w"}),
        under(JOB),
        group("kueue.x-k8s.io/workload", "w", "annotation kueue.x-k8s.io/workload=w (Kueue)"),
    ),
    "a group of Kueue": (
        metadata(labels={"kueue.x-k8s.io/pod-group-name": "g"}),
        under(),
        group("kueue.x-k8s.io/pod-group-name", "g", "label kueue.x-k8s.io/pod-group-name=g (Kueue)"),
    ),
    "a group of Volcano": (
        metadata(JOB, **{"scheduling.k8s.io/group-name": "g"}),
        under(JOB),
        group("scheduling.k8s.io/group-name", "g", "annotation scheduling.k8s.io/group-name=g (Volcano)"),
    ),
    "a job of Volcano": (
        metadata(labels={"volcano.sh/job-name": "j"}),
        under(),
        group("volcano.sh/job-name", "j", "label volcano.sh/job-name=j (Volcano)"),
    ),
    "a group of KAI": (
        metadata(JOB, **{"pod-group-name": "g"}),
        under(JOB),
        group("pod-group-name", "g", "annotation pod-group-name=g (KAI)"),
    ),
    "a group of the coscheduling plugin": (
        metadata(JOB, labels={"scheduling.x-k8s.io/pod-group": "g"}),
        under(JOB),
        group("scheduling.x-k8s.io/pod-group", "g", "label scheduling.x-k8s.io/pod-group=g (coscheduling)"),
    ),
    "a JobSet, by its label": (
        metadata(JOB, labels={"jobset.sigs.k8s.io/jobset-uid": "u-set", "jobset.sigs.k8s.io/jobset-name": "big"}),
        under(JOB, JOBSET),
        Belonging(
            key=("JobSet", "u-set"),
            kind="JobSet",
            name="big",
            because="label jobset.sigs.k8s.io/jobset-uid=u-set (JobSet big)",
        ),
    ),
    "a JobSet, by the owner of its Job": (
        metadata(JOB),
        under(JOB, JOBSET),
        Belonging(key=("JobSet", "u-set"), kind="JobSet", name="big", because="the same owner (JobSet big)"),
    ),
    "a JobSet that was not read": (
        metadata(JOB),
        Chains([work(JOB, JOBSET)]),
        Belonging(key=("JobSet", "u-set"), kind="JobSet", name="big", because="the same owner (JobSet big)"),
    ),
    "the TrainJob above its JobSet": (
        metadata(JOB, labels={"jobset.sigs.k8s.io/jobset-uid": "u-set"}),
        under(JOB, JOBSET, TRAINJOB),
        Belonging(
            key=("JobSet", "u-set"),
            kind="TrainJob",
            name="big",
            because="label jobset.sigs.k8s.io/jobset-uid=u-set (JobSet big, under TrainJob big)",
        ),
    ),
    "a worker of an MPIJob": (
        metadata(MPIJOB, labels={"training.kubeflow.org/job-name": "pi"}),
        under(MPIJOB),
        Belonging(
            key=("Kubeflow", "pi"),
            kind="MPIJob",
            name="pi",
            because="label training.kubeflow.org/job-name=pi (Kubeflow)",
        ),
    ),
    "its launcher, which a Job of it made": (
        metadata(JOB, labels={"training.kubeflow.org/job-name": "pi"}),
        under(JOB, MPIJOB),
        Belonging(
            key=("Kubeflow", "pi"),
            kind="MPIJob",
            name="pi",
            because="label training.kubeflow.org/job-name=pi (Kubeflow)",
        ),
    ),
    "a training kind that is not read": (
        metadata(TORCH, labels={"training.kubeflow.org/job-name": "net"}),
        under(),
        Belonging(
            key=("Kubeflow", "net"),
            kind="PyTorchJob",
            name="net",
            because="label training.kubeflow.org/job-name=net (Kubeflow)",
        ),
    ),
    "a group of a LeaderWorkerSet": (
        metadata(STATEFULSET, labels=LWS),
        under(STATEFULSET),
        Belonging(
            key=("LeaderWorkerSet", "5d0e"),
            kind="LeaderWorkerSet",
            name="serve-1",
            because="label leaderworkerset.sigs.k8s.io/group-key=5d0e (LeaderWorkerSet serve)",
        ),
    ),
    "a Job": (
        metadata(JOB),
        under(JOB),
        Belonging(key=("Job", "u-job"), kind="Job", name="big-node-0", because="the same owner (Job big-node-0)"),
    ),
    "a Job of a CronJob, not all Jobs of it": (
        metadata(JOB),
        Chains([work(JOB, CRON)]),
        Belonging(key=("Job", "u-job"), kind="Job", name="big-node-0", because="the same owner (Job big-node-0)"),
    ),
    "a Job that submits to what is stopped as a whole": (
        metadata(JOB),
        under(JOB, RAYJOB),
        Belonging(
            key=("TopOwner", "u-rayjob"), kind="RayJob", name="ray", because="the same topmost owner (RayJob ray)"
        ),
    ),
    "pods of a RayCluster of the same": (
        metadata(RAYCLUSTER),
        under(RAYCLUSTER, RAYJOB),
        Belonging(
            key=("TopOwner", "u-rayjob"), kind="RayJob", name="ray", because="the same topmost owner (RayJob ray)"
        ),
    ),
    "any other owner": (
        metadata(STATEFULSET),
        under(STATEFULSET),
        Belonging(
            key=("TopOwner", "u-sts"), kind="StatefulSet", name="db", because="the same topmost owner (StatefulSet db)"
        ),
    ),
    "nobody": (
        metadata(),
        under(),
        Belonging(key=("Alone", "u-pod"), kind="Pod", name="p-0", because="it has no owner and names no group"),
    ),
}


@pytest.mark.parametrize(("pod", "known", "expected"), EXPECTED.values(), ids=EXPECTED.keys())
def test_each_rule(pod, known, expected):
    assert resolve_gang(pod, known, rules_of([RUN])) == expected


ORDER = [
    {"labels": {"example.org/run": "42"}},
    {"scheduling_group": "g"},
    {"annotations": {"kueue.x-k8s.io/workload": "w"}},
    {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
    {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    {"labels": {"volcano.sh/job-name": "g"}},
    {"annotations": {"pod-group-name": "g"}},
    {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    {"labels": {"jobset.sigs.k8s.io/jobset-uid": "u-set"}},
    {"labels": {"training.kubeflow.org/job-name": "pi"}},
    {"labels": LWS},
]
"""What each rule but the last goes by, in the order of the rules."""


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_rule_that_knows_a_pod_names_its_gang(first):
    labels, annotations, named = {}, {}, ""
    for row in ORDER[first:]:
        labels |= row.get("labels", {})
        annotations |= row.get("annotations", {})
        named = named or row.get("scheduling_group", "")
    known = under(JOB)
    alone = metadata(
        JOB, ORDER[first].get("scheduling_group", ""), ORDER[first].get("labels"), **ORDER[first].get("annotations", {})
    )
    together = metadata(JOB, named, labels, **annotations)
    assert resolve_gang(together, known, rules_of([RUN])).key == resolve_gang(alone, known, rules_of([RUN])).key


def by_name(pattern, *pods):
    rules = rules_of([UserRule(regex=pattern)])
    return [resolve_gang(PodMetadata(pod=pod, uid=pod, namespace="ml"), under(), rules) for pod in pods]


def test_pods_whose_names_match_belong_together():
    found = by_name(r"run-[a-z]+-\d+", "run-a-0", "run-b-1", "other-run-a-0")
    assert [(one.kind, one.name) for one in found] == [
        ("name", r"run-[a-z]+-\d+"),
        ("name", r"run-[a-z]+-\d+"),
        ("Pod", "other-run-a-0"),
    ]
    assert found[0].key == found[1].key


def test_the_first_group_of_an_expression_parts_them():
    found = by_name(r"run-([a-z]+)-\d+", "run-a-0", "run-b-1", "run-a-7")
    assert [one.name for one in found] == ["a", "b", "a"]
    assert (
        found[0]
        == found[2]
        == Belonging(
            key=("UserRegex", "run-([a-z]+)-\\d+\na"),
            kind="name",
            name="a",
            because=r"names that match run-([a-z]+)-\d+ as 'a' (a rule of the stack)",
        )
    )


def test_an_expression_that_is_none_is_said():
    with pytest.raises(ConfigurationError, match=r"regex 'run-\(' of spec.gangs cannot be used: missing \)"):
        rules_of([UserRule(regex="run-(")])


@pytest.mark.parametrize("rule", [UserRule(), UserRule(label="a", regex="b")])
def test_a_rule_goes_by_one_thing(rule):
    with pytest.raises(ConfigurationError, match="neither or both of label and regex"):
        rules_of([rule])
