"""Why a job is stopped, or is not."""

from datetime import timedelta

import pytest

from tests.support.facts import gang, member, node, snapshot, target
from upgrader.core.explain.gang_explanation import find_gangs, why_gang
from upgrader.core.explain.node_explanation import Explanation
from upgrader.core.forecast.forecast import forecast_rollout
from upgrader.core.model.fleet import Owner, Terms
from upgrader.core.model.strategy import StrategyFacts
from upgrader_dev.simulated.cluster.ports import START

OLDER = "The node has driver sim 560.1, the stack requires sim 570.10."
SKIPPED = "Node e carries the label gpu-upgrader.io/skip=true; remove it to have the node upgraded."
QUIET = (
    "The plan waits until ml/Job/quiet ends. It declares no checkpoint method. See "
    "docs/guides/job-authors/checkpointing.md."
)
JOBSET = Owner(kind="JobSet", name="big", uid="u-set", api_version="jobset.x-k8s.io/v1alpha2")
TRAINJOB = Owner(kind="TrainJob", name="big", uid="u-train", api_version="trainer.kubeflow.org/v1alpha1")
JOBS = tuple(Owner(kind="Job", name=f"big-node-{number}", uid=f"u-{number}") for number in range(2))
DATABASE = Owner(kind="StatefulSet", name="db", uid="u-db", api_version="apps/v1")
BIG = gang(
    "big",
    ["a", "b"],
    name="ml/TrainJob/big",
    kind="TrainJob",
    owner=TRAINJOB,
    owners=(*JOBS, JOBSET, TRAINJOB),
    resolved_by="label jobset.sigs.k8s.io/jobset-uid=u-set (JobSet big, under TrainJob big)",
    members=tuple(
        member(f"big-node-{number}-0-abcde", at, started_at=START - timedelta(hours=3))
        for number, at in enumerate("ab")
    ),
    timeout_seconds=600,
    min_runtime_seconds=7200,
    terms=Terms(methods=("http", "file"), ack_scope="leader", max_loss_seconds=90),
    lane="fast",
    lane_from_class=True,
)
NOBODY = "Its pods have no controller that would create them again."
WEB = "the same topmost owner (ReplicaSet web)"
ENDING = gang("ending", ["h"], ends_at=START + timedelta(minutes=20))
WORLD = snapshot(
    [*(node(name) for name in "abcfgh"), node("d", "570.10"), node("e", skip=True)],
    [
        BIG,
        ENDING,
        gang("quiet", ["e"], method=""),
        gang("side", ["d"]),
        gang("kept", ["e"]),
        gang(
            "web", ["g"], replicated=True, method="", owner=None, resolved_by="the same topmost owner (ReplicaSet web)"
        ),
        gang(
            "solo",
            ["f"],
            name="ml/Pod/solo",
            kind="Pod",
            owner=None,
            resolved_by="it has no owner and names no group",
            cannot_stop=NOBODY,
        ),
        gang("db", ["c"], name="ml/StatefulSet/db", kind="StatefulSet", owner=DATABASE, owners=(DATABASE,)),
    ],
)
STRATEGY = StrategyFacts(
    max_unavailable="100%",
    canary=False,
    placement_unguaranteed=True,
    completion_until=START + timedelta(hours=1),
)
MADE = forecast_rollout(WORLD, target(), STRATEGY, now=START)


def batch_of(name):
    return next(
        batch.number for batch in MADE.batches for group in batch.groups if name in (*group.gangs, *group.evicted)
    )


def cost(name):
    (one,) = [each for each in MADE.prediction.interruptions if each.gang == name]
    return (
        f"Its request is expected at {one.asked_at.isoformat().replace('+00:00', 'Z')}, with a pause of "
        f"{round(one.seconds / 60)} min, which costs {one.lost_gpu_hours:.1f} GPU-hours."
    )


EXPECTED = {
    "ml/TrainJob/big": Explanation(
        subject="ml/TrainJob/big",
        verdict=f"ml/TrainJob/big is stopped once, in batch {batch_of('ml/TrainJob/big')}, after its leader "
        "acknowledged a checkpoint.",
        because=(
            cost("ml/TrainJob/big"),
            f"Node a is upgraded: {OLDER}",
            f"Node b is upgraded: {OLDER}",
            "It has 2 members with 16 GPUs on a, b.",
            "Its 2 pods belong together: label jobset.sigs.k8s.io/jobset-uid=u-set (JobSet big, under TrainJob big).",
            "Its owners: Job big-node-0, Job big-node-1, JobSet big, TrainJob big.",
            "A stop suspends TrainJob big; a restart resumes it.",
            "Its checkpoint methods: http, then file; one checkpoint may take 10 min.",
            "It is not stopped before 2026-11-21T08:00:00Z: it runs for 120 min at least.",
            "Work of 90 s may be lost.",
            "Its checkpoints go through lane fast, from StorageClass.",
        ),
    ),
    "ml/StatefulSet/db": Explanation(
        subject="ml/StatefulSet/db",
        verdict=f"ml/StatefulSet/db is stopped once, in batch {batch_of('ml/StatefulSet/db')}, after all its members "
        "acknowledged a checkpoint.",
        because=(
            cost("ml/StatefulSet/db"),
            f"Node c is upgraded: {OLDER}",
            "It has 1 member with 8 GPUs on c.",
            "Its owners: StatefulSet db.",
            "A stop sets the replicas of StatefulSet db to 0; a restart sets them as before.",
        ),
    ),
    "ml/Job/web": Explanation(
        subject="ml/Job/web",
        verdict=f"Pods of ml/Job/web are evicted in batch {batch_of('ml/Job/web')}, when their nodes are upgraded.",
        because=(
            f"Node g is upgraded: {OLDER}",
            "It has 1 member with 8 GPUs on g.",
            "Its only pod forms a gang by: the same topmost owner (ReplicaSet web).",
        ),
    ),
    "ml/Job/ending": Explanation(
        subject="ml/Job/ending",
        verdict="ml/Job/ending is not stopped: it is expected to end by 2026-11-21T09:20:00Z.",
        because=(
            "Nodes h are upgraded when it has ended.",
            "It has 1 member with 8 GPUs on h.",
            "A stop suspends Job ending; a restart resumes it.",
            "It is expected to end by 2026-11-21T09:20:00Z.",
        ),
    ),
    "ml/Pod/solo": Explanation(
        subject="ml/Pod/solo",
        verdict="ml/Pod/solo is not stopped, and blocks the upgrade of its nodes.",
        because=(
            f"ml/Pod/solo cannot be stopped and restarted: {NOBODY} The plan waits until it ends.",
            "It has 1 member with 8 GPUs on f.",
            "Its only pod forms a gang by: it has no owner and names no group.",
            NOBODY,
        ),
    ),
    "ml/Job/quiet": Explanation(
        subject="ml/Job/quiet",
        verdict="ml/Job/quiet is not stopped, and blocks the upgrade of its nodes.",
        because=(QUIET, "It has 1 member with 8 GPUs on e.", "A stop suspends Job quiet; a restart resumes it."),
    ),
    "ml/Job/kept": Explanation(
        subject="ml/Job/kept",
        verdict="ml/Job/kept is not stopped now: its nodes have other blockers.",
        because=(
            QUIET,
            SKIPPED,
            "It has 1 member with 8 GPUs on e.",
            "A stop suspends Job kept; a restart resumes it.",
        ),
    ),
    "ml/Job/side": Explanation(
        subject="ml/Job/side",
        verdict="ml/Job/side is not stopped: none of its nodes is to be upgraded.",
        because=("It has 1 member with 8 GPUs on d.", "A stop suspends Job side; a restart resumes it."),
    ),
    "ml/Job/nobody": None,
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items(), ids=EXPECTED.keys())
def test_why_a_gang(name, expected):
    assert why_gang(name, WORLD, MADE) == expected


MEANT = {
    "the whole name": ("ml/TrainJob/big", ["ml/TrainJob/big"]),
    "namespace and job": ("ml/big", ["ml/TrainJob/big"]),
    "the job alone": ("train", ["ml/Job/train", "web/Job/train"]),
    "a Job below": ("big-node-1", ["ml/TrainJob/big"]),
    "one of its pods": ("ml/big-node-0-0-abcde", ["ml/TrainJob/big"]),
    "nothing of this name": ("trai", []),
}


@pytest.mark.parametrize(("text", "names"), MEANT.values(), ids=MEANT.keys())
def test_what_somebody_may_mean(text, names):
    trains = [gang("train", ["a"]), gang("train", ["b"], name="web/Job/train", namespace="web")]
    assert list(find_gangs(snapshot([], [*trains, BIG]), text)) == names
