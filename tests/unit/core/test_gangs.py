from datetime import timedelta

import msgspec
import pytest

from tests.support.facts import member
from tests.support.world import START
from upgrader.core.declarations import Declared
from upgrader.core.fleet import Gang, Owner, Terms
from upgrader.core.gangs import JobFacts, PodFacts, gangs_of

FILE = Declared(method="file")
TRAIN = Owner(kind="Job", name="train", uid="uid-job-train")
NO_CONTROLLER = "Its pods have no controller that would make them again."


def pod(name, at="a", *, controller=TRAIN, group="", declared=FILE, ours=False, **changes):
    return PodFacts(
        member=member(name, at, **changes), controller=controller, pod_group=group, declared=declared, ours=ours
    )


def job(name="train", wanted=1, **changes):
    return JobFacts(**{"name": name, "namespace": "ml", "uid": f"uid-job-{name}", "wanted": wanted, **changes})


def expected(name="ml/Job/train", kind="Job", members=("train-0",), owner=TRAIN, wanted=1, method="file", **changes):
    facts = {
        "name": name,
        "namespace": "ml",
        "kind": kind,
        "members": tuple(one if not isinstance(one, str) else member(one, "a") for one in members),
        "owner": owner,
        "wanted": wanted,
        "method": method,
        "terms": Terms(methods=(method,) if method not in {"", "none"} else ()),
    }
    return Gang(**{**facts, **changes})


WEB = Owner(kind="ReplicaSet", name="web-5d", uid="uid-rs")
DATABASE = Owner(kind="StatefulSet", name="db", uid="uid-sts")
TORCH = Owner(kind="PyTorchJob", name="big", uid="uid-torch")
NONE = Declared()
SPARING = Declared(method="file", min_runtime="2h", expected_runtime="10h", lane="fast")

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
    "our own pods never count": ([pod("validate", ours=True)], [], []),
    "pods without GPUs are nobody's gang": ([pod("web", gpus=0)], [job()], []),
    "a launcher without GPUs is a mate of its Job": (
        [pod("train-0"), pod("train-launcher", gpus=0)],
        [job(wanted=2)],
        [expected(members=[member("train-0", "a"), member("train-launcher", "a", gpus=0)], wanted=2)],
    ),
    "a pod group with one Job under it has that owner": (
        [pod("train-0", group="g"), pod("train-1", group="g")],
        [job(wanted=2)],
        [expected(name="ml/pod-group/g", kind="pod-group", members=["train-0", "train-1"], wanted=2)],
    ),
    "a pod group of two Jobs cannot be stopped in one write": (
        [
            pod("train-0", group="g"),
            pod("eval-0", group="g", controller=Owner(kind="Job", name="eval", uid="uid-job-eval")),
        ],
        [job(wanted=1), job("eval", wanted=1)],
        [
            expected(
                name="ml/pod-group/g",
                kind="pod-group",
                members=["eval-0", "train-0"],
                owner=None,
                wanted=2,
                cannot_stop="Pod group g has pods of several owners (Job eval, Job train), which cannot be "
                "suspended in "
                "one write.",
            )
        ],
    ),
    "a pod group with a pod of nobody": (
        [pod("train-0", group="g"), pod("extra", group="g", controller=None)],
        [job(wanted=1)],
        [
            expected(
                name="ml/pod-group/g",
                kind="pod-group",
                members=["extra", "train-0"],
                owner=None,
                cannot_stop="Pod group g has pods of several owners (no controller at all, Job train), which cannot be "
                "suspended in one write.",
            )
        ],
    ),
    "a Job whose pods are in two groups would stop both": (
        [pod("train-0", group="g"), pod("train-1", group="h")],
        [job(wanted=2)],
        [
            expected(
                name=f"ml/pod-group/{group}",
                kind="pod-group",
                members=[name],
                owner=None,
                wanted=2,
                cannot_stop="Job train belongs to several pod groups; only Jobs that stand for themselves can be "
                "suspended "
                "by us.",
            )
            for group, name in (("g", "train-0"), ("h", "train-1"))
        ],
    ),
    "a Job that something else suspends and resumes": (
        [pod("train-0")],
        [job(managed_by="JobSet big")],
        [
            expected(
                owner=None,
                cannot_stop="Job train belongs to JobSet big; only Jobs that stand for themselves can be suspended "
                "by us.",
            )
        ],
    ),
    "a pod alone cannot be restarted": (
        [pod("solo", controller=None)],
        [],
        [expected(name="ml/Pod/solo", kind="Pod", members=["solo"], owner=None, cannot_stop=NO_CONTROLLER)],
    ),
    "pods of a Job that is gone": (
        [pod("train-0")],
        [],
        [expected(owner=None, cannot_stop="Its Job train is gone or was replaced by another of this name.")],
    ),
    "a training kind that we cannot stop yet": (
        [pod("big-0", controller=TORCH), pod("big-1", controller=TORCH)],
        [],
        [
            expected(
                name="ml/PyTorchJob/big",
                kind="PyTorchJob",
                members=["big-0", "big-1"],
                owner=None,
                wanted=2,
                cannot_stop="Only Jobs can be suspended today, and its pods belong to PyTorchJob big.",
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
                cannot_stop="Only Jobs can be suspended today, and its pods belong to StatefulSet db.",
            )
        ],
    ),
    "an undeclared Job": ([pod("train-0", declared=NONE)], [job()], [expected(method="")]),
    "declared by the Job": (
        [pod("train-0", declared=NONE)],
        [job(declared=Declared(method="api"))],
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
        [pod("train-0"), pod("train-1", declared=Declared(method="api"))],
        [job(wanted=2)],
        [
            expected(
                members=["train-0", "train-1"],
                wanted=2,
                method="",
                undeclared_because="Its members declare different ways of asking.",
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
    "a Job that its controller ends before that": (
        [pod("train-0", declared=SPARING, started_at=START)],
        [job(ends_by=START + timedelta(hours=3))],
        [
            expected(
                members=[member("train-0", "a", started_at=START)],
                min_runtime_seconds=7200,
                ends_at=START + timedelta(hours=3),
                lane="fast",
            )
        ],
    ),
    "a veto of one member is one of the gang": (
        [pod("train-0"), pod("train-1", declared=Declared(method="file", veto="x=true"))],
        [job(wanted=2)],
        [expected(members=["train-0", "train-1"], wanted=2, veto="x=true")],
    ),
}


@pytest.mark.parametrize(("pods", "jobs", "gangs"), TABLE.values(), ids=TABLE.keys())
def test_who_belongs_together(pods, jobs, gangs):
    spaces = {"space": Declared(method="none", timeout="1m")}
    assert gangs_of(pods, jobs, spaces) == tuple(gangs)
    assert gangs_of(reversed(pods), reversed(jobs), spaces) == tuple(gangs)


def test_pods_that_still_end_are_told_from_those_of_a_new_job_with_the_same_name():
    before = Owner(kind="Job", name="train", uid="uid-job-before")
    found = gangs_of([pod("old-0", controller=before, terminating=True), pod("train-0")], [job()], {})
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
