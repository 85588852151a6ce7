"""An owner of each kind in core.workloads.owner_kinds, as their projects write them; with two members of eight GPUs."""

import copy
from typing import Any

from upgrader.core.workloads.owner_kinds import OWNERS, OwnerKind
from upgrader_dev.simulated.cluster.placing import trainer_spec

Object = dict[str, Any]

IDS = [f"{row.kind}.{row.group}" for row in OWNERS]


def template(**labels: str) -> Object:
    """Of a trainer that is asked by file; pods of jobs say themselves that they are not restarted in place."""
    return {"metadata": {"labels": labels} if labels else {}, "spec": {**trainer_spec(8), "restartPolicy": "Never"}}


def spec_of(row: OwnerKind) -> Object:
    """The spec of an owner that is on."""
    pods = template()
    specs: dict[str, Object] = {
        "Workload.kueue.x-k8s.io": {
            "active": True,
            "queueName": "team-a",
            "podSets": [{"name": "main", "count": 2, "template": pods}],
        },
        "TrainJob.trainer.kubeflow.org": {
            "runtimeRef": {"name": "torch"},
            "trainer": {"numNodes": 2},
            "suspend": False,
        },
        "JobSet.jobset.x-k8s.io": {
            "suspend": False,
            "replicatedJobs": [
                {
                    "name": "workers",
                    "replicas": 1,
                    "template": {
                        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pods}
                    },
                }
            ],
        },
        "Job.batch": {
            "suspend": False,
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
            "template": pods,
        },
        "MPIJob.kubeflow.org": {
            "runPolicy": {"suspend": False, "cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": copy.deepcopy(pods)},
                "Worker": {"replicas": 2, "template": copy.deepcopy(pods)},
            },
        },
        "RayJob.ray.io": {
            "suspend": False,
            "entrypoint": "python train.py",
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {}, "template": copy.deepcopy(pods)},
                "workerGroupSpecs": [
                    {
                        "groupName": "gpu",
                        "replicas": 2,
                        "minReplicas": 2,
                        "maxReplicas": 2,
                        "rayStartParams": {},
                        "template": copy.deepcopy(pods),
                    }
                ],
            },
        },
        "Job.batch.volcano.sh": {
            "minAvailable": 2,
            "queue": "default",
            "tasks": [{"name": "worker", "replicas": 2, "template": pods}],
        },
        "StatefulSet.apps": {
            "replicas": 2,
            "serviceName": "train",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "train"}},
            "template": _always(template(app="train")),
        },
        "LeaderWorkerSet.leaderworkerset.x-k8s.io": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": 2,
                "leaderTemplate": _always(template()),
                "workerTemplate": _always(template()),
            },
        },
    }
    return copy.deepcopy(specs[f"{row.kind}.{row.group}"])


def owner(row: OwnerKind, name: str = "train", **changes: Any) -> Object:
    """An owner that is on, as a person applies it."""
    return {
        "apiVersion": row.api_version,
        "kind": row.kind,
        "metadata": {"name": name, "namespace": "default", **changes},
        "spec": spec_of(row),
    }


def _always(pods: Object) -> Object:
    return {**pods, "spec": {**pods["spec"], "restartPolicy": "Always"}}
