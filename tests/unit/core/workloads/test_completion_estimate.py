"""When a gang ends, as its owners say."""

from datetime import timedelta

import pytest

from upgrader.core.model.fleet import Owner
from upgrader.core.timing import format_time
from upgrader.core.workloads.completion_estimate import estimate_of, limit_of
from upgrader.core.workloads.owner_objects import Work
from upgrader_dev.simulated.cluster.ports import START


def work(kind, api_version, spec=None, status=None, **labels):
    owner = Owner(kind=kind, name="x", uid="u", api_version=api_version)
    said = {f"kueue.x-k8s.io/{name.replace('_', '-')}": value for name, value in labels.items()}
    return Work(owner=owner, namespace="ml", spec=spec or {}, status=status or {}, labels=said)


def train(left, minutes_ago):
    said = {"estimatedRemainingSeconds": left, "lastUpdatedTime": format_time(START - timedelta(minutes=minutes_ago))}
    return work("TrainJob", "trainer.kubeflow.org/v1alpha1", status={"trainerStatus": said})


ESTIMATES = {
    "told just now": (train(600, 0), START + timedelta(minutes=10)),
    "counted from when it was told": (train(600, 9), START + timedelta(minutes=1)),
    "too old": (train(600, 11), None),
    "no number": (train("soon", 0), None),
    "below zero": (train(-1, 0), None),
    "never told": (work("TrainJob", "trainer.kubeflow.org/v1alpha1"), None),
    "of another kind": (work("Job", "batch/v1", status=train(600, 0).status), None),
}


@pytest.mark.parametrize(("seen", "expected"), ESTIMATES.values(), ids=ESTIMATES.keys())
def test_estimates(seen, expected):
    assert estimate_of([seen], START) == expected


STARTED = {"startTime": format_time(START)}
ADMITTED = {"type": "Admitted", "status": "True", "lastTransitionTime": format_time(START)}
HOUR = START + timedelta(hours=1)
LIMITS = {
    "a Job": (work("Job", "batch/v1", {"activeDeadlineSeconds": 3600}, STARTED), HOUR),
    "a Job that has not started": (work("Job", "batch/v1", {"activeDeadlineSeconds": 3600}), None),
    "a Job without a limit": (work("Job", "batch/v1", {}, STARTED), None),
    "a TrainJob": (work("TrainJob", "trainer.kubeflow.org/v1alpha1", {"activeDeadlineSeconds": 3600}, STARTED), HOUR),
    "an MPIJob": (
        work("MPIJob", "kubeflow.org/v2beta1", {"runPolicy": {"activeDeadlineSeconds": 3600}}, STARTED),
        HOUR,
    ),
    "a RayJob": (work("RayJob", "ray.io/v1", {"activeDeadlineSeconds": 3600}, STARTED), HOUR),
    "a Workload of Kueue": (
        work(
            "Workload",
            "kueue.x-k8s.io/v1beta1",
            {"maximumExecutionTimeSeconds": 4000},
            {"conditions": [ADMITTED], "accumulatedPastExexcutionTimeSeconds": 400},
        ),
        HOUR,
    ),
    "a Workload of Kueue in the version that spells it right": (
        work(
            "Workload",
            "kueue.x-k8s.io/v1beta2",
            {"maximumExecutionTimeSeconds": 4000},
            {"conditions": [ADMITTED], "accumulatedPastExecutionTimeSeconds": 400},
        ),
        HOUR,
    ),
    "one that is not admitted": (
        work("Workload", "kueue.x-k8s.io/v1beta1", {"maximumExecutionTimeSeconds": 4000}),
        None,
    ),
    "a Job in a queue of Kueue": (
        work("Job", "batch/v1", {}, STARTED, queue_name="gpus", max_exec_time_seconds="3600"),
        HOUR,
    ),
    "one that its own limit ends first": (
        work(
            "Job",
            "batch/v1",
            {"activeDeadlineSeconds": 3600},
            STARTED,
            queue_name="gpus",
            max_exec_time_seconds="7200",
        ),
        HOUR,
    ),
    "a queued Job that has not started": (
        work("Job", "batch/v1", queue_name="gpus", max_exec_time_seconds="3600"),
        None,
    ),
    "one with the label of Kueue in no queue": (work("Job", "batch/v1", {}, STARTED, max_exec_time_seconds="60"), None),
    "one whose label says nothing": (
        work("Job", "batch/v1", {}, STARTED, queue_name="gpus", max_exec_time_seconds="1h"),
        None,
    ),
    "one whose label says that there is no limit": (
        work("Job", "batch/v1", {}, STARTED, queue_name="gpus", max_exec_time_seconds="0"),
        None,
    ),
    "nonsense": (work("Job", "batch/v1", {"activeDeadlineSeconds": "1h"}, {"startTime": "yesterday"}), None),
}


@pytest.mark.parametrize(("seen", "expected"), LIMITS.values(), ids=LIMITS.keys())
def test_limits(seen, expected):
    assert limit_of([seen], []) == expected


def test_the_first_limit_counts_whoever_set_it():
    job = work("Job", "batch/v1", {"activeDeadlineSeconds": 3600}, STARTED)
    assert limit_of([job], [(START, 60), (START, 90)]) == START + timedelta(seconds=60)
