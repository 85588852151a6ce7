from datetime import timedelta

import msgspec
import pytest

from tests.support.facts import member
from tests.support.gang_facts import NO_CONTROLLER, TRAIN, expected, found, grouped, job, pod
from upgrader.core.model.fleet import Owner, Terms
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.gangs import gangs_of
from upgrader.core.workloads.owner_chain import Chains
from upgrader_dev.simulated.cluster.ports import START

WEB = Owner(kind="ReplicaSet", name="web-5d", uid="uid-rs", api_version="apps/v1")
DATABASE = Owner(kind="StatefulSet", name="db", uid="uid-sts", api_version="apps/v1")
FLOW = Owner(kind="Workflow", name="nightly", uid="uid-wf", api_version="argoproj.io/v1alpha1")
EVAL = Owner(kind="Job", name="eval", uid="uid-job-eval")
TORCH = Owner(kind="PyTorchJob", name="big", uid="uid-torch", api_version="kubeflow.org/v1")
NONE = CheckpointAnnotations()
SPARING = CheckpointAnnotations(method="file", min_runtime="2h", expected_runtime="10h", lane="fast")

TABLE = {
    "the pods of a Job are one gang": (
        [pod("train-1", "b"), pod("train-0")],
        [job(wanted=2)],
        [expected(members=[member("train-0", "a"), member("train-1", "b")], wanted=2)],
    ),
    "a Job that lacks a pod is not complete": ([pod("train-0")], [job(wanted=2)], [expected(wanted=2)]),
    "a suspended Job with the record of its stop": (
        [pod("train-0", terminating=True)],
        [job(wanted=1, suspended=True, stopped_by="plan-1")],
        [expected(members=[member("train-0", "a", terminating=True)], suspended=True, stopped_by="plan-1")],
    ),
    "pods that ended are no members": (
        [pod("train-0"), pod("train-1", phase="Succeeded"), pod("train-2", phase="Failed")],
        [job()],
        [expected()],
    ),
    "pods without GPUs are nobody's gang": ([pod("web", gpus=0)], [job()], []),
    "a launcher without GPUs is a mate of its Job": (
        [pod("train-0"), pod("train-launcher", gpus=0)],
        [job(wanted=2)],
        [expected(members=[member("train-0", "a"), member("train-launcher", "a", gpus=0)], wanted=2)],
    ),
    "a pod group with one Job under it has that owner": (
        [pod("train-0", group="g"), pod("train-1", group="g")],
        [job(wanted=2)],
        [grouped(members=["train-0", "train-1"], wanted=2, owner=TRAIN)],
    ),
    "a pod group of two Jobs cannot be stopped in one write": (
        [pod("train-0", group="g"), pod("eval-0", group="g", controller=EVAL)],
        [job(wanted=1), job("eval", wanted=1)],
        [
            grouped(
                members=["eval-0", "train-0"],
                wanted=2,
                owners=(EVAL, TRAIN),
                cannot_stop="Pod group g has pods of several owners (Job eval, Job train), which cannot be suspended "
                "together.",
            )
        ],
    ),
    "a pod group with a pod of nobody": (
        [pod("train-0", group="g"), pod("extra", group="g", controller=None)],
        [job(wanted=1)],
        [
            grouped(
                members=["extra", "train-0"],
                cannot_stop="Pod group g has pods of several owners (no controller, Job train), which cannot be "
                "suspended together.",
            )
        ],
    ),
    "a Job whose pods are in two groups would stop both": (
        [pod("train-0", group="g"), pod("train-1", group="h")],
        [job(wanted=2)],
        [
            grouped(
                group,
                members=[name],
                wanted=2,
                cannot_stop="Job train has pods in 2 gangs; to suspend it would stop all of them.",
            )
            for group, name in (("g", "train-0"), ("h", "train-1"))
        ],
    ),
    "pods of its Job without GPUs that are in no group are not stopped twice by its switch": (
        [pod("train-0", group="g"), pod("train-launcher", gpus=0)],
        [job()],
        [grouped(owner=TRAIN)],
    ),
    "a Job of something that we do not know": (
        [pod("train-0")],
        [job(controller=FLOW)],
        [
            expected(
                owner=None,
                owners=(
                    TRAIN,
                    Owner(kind="Workflow", name="nightly", uid="uid-wf", api_version="argoproj.io/v1alpha1"),
                ),
                cannot_stop="Job train belongs to Workflow nightly, which is not supported and may revert a stop.",
            )
        ],
    ),
    "a CronJob makes Jobs, it resumes none": (
        [pod("train-0")],
        [job(controller=Owner(kind="CronJob", name="nightly", uid="uid-cron"))],
        [expected()],
    ),
    "a Job in a queue of Kueue without a Workload": (
        [pod("train-0")],
        [job(labels={"kueue.x-k8s.io/queue-name": "q"})],
        [
            expected(
                owner=None,
                cannot_stop="Job train belongs to Kueue's queue q, but it has no Workload.",
            )
        ],
    ),
    "a Job that another cluster's controller manages": (
        [pod("train-0")],
        [job(spec={"managedBy": "kueue.x-k8s.io/multikueue"})],
        [
            expected(
                owner=None,
                cannot_stop="Job train is managed by kueue.x-k8s.io/multikueue, which may revert a stop.",
            )
        ],
    ),
    "a Job that says that its usual controller manages it": (
        [pod("train-0")],
        [job(spec={"managedBy": "kubernetes.io/job-controller"})],
        [expected()],
    ),
    "a pod alone cannot be restarted": (
        [pod("solo", controller=None)],
        [],
        [
            expected(
                name="ml/Pod/solo",
                kind="Pod",
                members=["solo"],
                owner=None,
                bare=True,
                cannot_stop=NO_CONTROLLER,
                resolved_by="it has no owner and names no group",
                owners=(),
            )
        ],
    ),
    "a pod that Kueue ends": (
        [
            pod(
                "solo",
                controller=None,
                started_at=START,
                labels={"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/max-exec-time-seconds": "7200"},
            )
        ],
        [],
        [
            expected(
                name="ml/Pod/solo",
                kind="Pod",
                members=[
                    member(
                        "solo",
                        "a",
                        started_at=START,
                        labels={"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/max-exec-time-seconds": "7200"},
                    )
                ],
                owner=None,
                bare=True,
                cannot_stop=NO_CONTROLLER,
                resolved_by="it has no owner and names no group",
                owners=(),
                ends_at=START + timedelta(hours=2),
            )
        ],
    ),
    "pods of a Job that is gone": (
        [pod("train-0")],
        [],
        [expected(owner=None, cannot_stop="Its Job train was deleted or replaced by another object of this name.")],
    ),
    "a training kind that we do not know": (
        [pod("big-0", controller=TORCH), pod("big-1", controller=TORCH)],
        [],
        [
            expected(
                name="ml/PyTorchJob/big",
                kind="PyTorchJob",
                members=["big-0", "big-1"],
                owner=None,
                wanted=2,
                cannot_stop="The operator cannot stop and restart a PyTorchJob, and its pods belong to PyTorchJob big.",
                resolved_by="the same topmost owner (PyTorchJob big)",
                owners=(TORCH,),
            )
        ],
    ),
    "undeclared replicas are evicted": (
        [pod("web-0", controller=WEB, declared=NONE), pod("web-1", "b", controller=WEB, declared=NONE)],
        [],
        [
            expected(
                name="ml/ReplicaSet/web-5d",
                kind="ReplicaSet",
                members=[member("web-0", "a"), member("web-1", "b")],
                owner=None,
                wanted=2,
                method="",
                replicated=True,
                resolved_by="the same topmost owner (ReplicaSet web-5d)",
                owners=(WEB,),
            )
        ],
    ),
    "declared replicas are asked, so they are never evicted unasked (law 1)": (
        [pod("db-0", controller=DATABASE)],
        [],
        [
            expected(
                name="ml/StatefulSet/db",
                kind="StatefulSet",
                members=["db-0"],
                owner=None,
                cannot_stop="Its StatefulSet db was deleted or replaced by another object of this name.",
                resolved_by="the same topmost owner (StatefulSet db)",
                owners=(DATABASE,),
            )
        ],
    ),
    "what a gang says about its times": (
        [
            pod("train-0", declared=SPARING, started_at=START),
            pod("train-1", declared=SPARING, started_at=START + timedelta(hours=1)),
        ],
        [job(wanted=2)],
        [
            expected(
                members=[
                    member("train-0", "a", started_at=START),
                    member("train-1", "a", started_at=START + timedelta(hours=1)),
                ],
                wanted=2,
                min_runtime_seconds=7200,
                ends_at=START + timedelta(hours=11),
                lane="fast",
            )
        ],
    ),
    "a lane that nobody declares is the StorageClass of its claims": (
        [pod("train-0", storage_class="nfs-slow"), pod("train-1")],
        [job(wanted=2)],
        [
            expected(
                members=[member("train-0", "a"), member("train-1", "a")],
                wanted=2,
                lane="nfs-slow",
                lane_from_class=True,
            )
        ],
    ),
    "claims of two StorageClasses": (
        [pod("train-0", storage_class="nfs-slow"), pod("train-1", storage_class="nvme")],
        [job(wanted=2)],
        [expected(members=[member("train-0", "a"), member("train-1", "a")], wanted=2)],
    ),
    "a lane that is declared counts before the StorageClass": (
        [pod("train-0", declared=CheckpointAnnotations(method="file", lane="fast"), storage_class="nfs-slow")],
        [job()],
        [expected(lane="fast")],
    ),
    "a Job that its controller ends before that": (
        [pod("train-0", declared=SPARING, started_at=START)],
        [job(spec={"activeDeadlineSeconds": 10800}, status={"startTime": "2026-11-21T09:00:00Z"})],
        [
            expected(
                members=[member("train-0", "a", started_at=START)],
                min_runtime_seconds=7200,
                ends_at=START + timedelta(hours=3),
                lane="fast",
            )
        ],
    ),
    "an undeclared Job": ([pod("train-0", declared=NONE)], [job()], [expected(method="")]),
    "declared by the Job": (
        [pod("train-0", declared=NONE)],
        [job(declared=CheckpointAnnotations(method="api"))],
        [expected(method="api")],
    ),
    "declared by the namespace": (
        [pod("train-0", declared=NONE, namespace="space")],
        [job(namespace="space")],
        [
            expected(
                name="space/Job/train",
                namespace="space",
                members=[member("train-0", "a", namespace="space")],
                method="none",
                timeout_seconds=60,
            )
        ],
    ),
    "declared file without the mounts": (
        [pod("train-0", mounted=False)],
        [job()],
        [
            expected(
                members=[member("train-0", "a", mounted=False)],
                method="",
                undeclared_because="It declares file, but container trainer of pod train-0 does not mount the "
                "downward API "
                "with checkpoint-request and park-seconds at /etc/gpu-upgrader/ and a volume at /run/checkpoint/.",
            )
        ],
    ),
    "members that declare different ways": (
        [pod("train-0"), pod("train-1", declared=CheckpointAnnotations(method="api"))],
        [job(wanted=2)],
        [
            expected(
                members=["train-0", "train-1"],
                wanted=2,
                method="",
                undeclared_because="Its members declare different checkpoint methods.",
            )
        ],
    ),
    "a veto of one member is one of the gang": (
        [pod("train-0"), pod("train-1", declared=CheckpointAnnotations(method="file", veto="x=true"))],
        [job(wanted=2)],
        [expected(members=["train-0", "train-1"], wanted=2, veto="x=true")],
    ),
}


@pytest.mark.parametrize(("pods", "jobs", "gangs"), TABLE.values(), ids=TABLE.keys())
def test_who_belongs_together(pods, jobs, gangs):
    spaces = {"space": CheckpointAnnotations(method="none", timeout="1m")}
    assert gangs_of(pods, Chains(jobs), spaces) == tuple(gangs)
    assert gangs_of(reversed(pods), Chains(reversed(jobs)), spaces) == tuple(gangs)


def test_pods_that_still_end_are_told_from_those_of_a_new_job_with_the_same_name():
    before = Owner(kind="Job", name="train", uid="uid-job-before")
    found = gangs_of([pod("old-0", controller=before, terminating=True), pod("train-0")], Chains([job()]), {})
    assert [(gang.name, gang.members[0].pod, gang.owner) for gang in found] == [
        ("ml/Job/train", "train-0", TRAIN),
        ("ml/Job/train~2", "old-0", None),
    ]


def test_complete_means_all_wanted_members_run():
    gang = expected(members=["train-0", "train-1"], wanted=2)
    waiting = member("train-1", "", phase="Pending")
    ending = member("train-1", "a", terminating=True)
    assert gang.complete
    assert not msgspec.structs.replace(gang, wanted=3).complete
    assert not msgspec.structs.replace(gang, members=(gang.members[0], waiting)).complete
    assert not msgspec.structs.replace(gang, members=(gang.members[0], ending)).complete


class TestHowTheyAreAskedThatDoNotSay:
    SILENT = CheckpointAnnotations()

    def test_a_job_goes_by_the_default(self):
        (one,) = found([pod("train-0", declared=self.SILENT)], [job()], method="api")
        assert (one.method, one.terms) == ("api", Terms(methods=("api",)))

    def test_what_it_says_itself_counts_more(self):
        (one,) = found([pod("train-0", declared=CheckpointAnnotations(method="none"))], [job()], method="api")
        assert one.method == "none"

    def test_pods_that_their_owner_replaces_are_evicted_all_the_same(self):
        replica = Owner(kind="ReplicaSet", name="web-5d", uid="uid-rs")
        (one,) = found([pod("web-5d-x", controller=replica, declared=self.SILENT)], method="api")
        assert (one.method, one.replicated) == ("", True)
