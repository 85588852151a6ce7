"""Simulated controllers besides the Job controller: StatefulSets, and stand-ins for JobSet and Kueue."""

import json

from upgrader.api.kubernetes import OwnerObject
from upgrader.api.resources import JOBS, PODS, ResourceKind
from upgrader.core import timing
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore

LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


def _resource_kind(kind: str, api_version: str) -> ResourceKind[OwnerObject]:
    row = owner_kind(kind, api_version)
    if row is None:
        raise LookupError(f"{kind} {api_version} is missing in core.workloads.owner_kinds")
    return ResourceKind(
        group=row.group, version=row.version, kind=kind, plural=row.plural, namespaced=True, type=OwnerObject
    )


STATEFULSETS = _resource_kind("StatefulSet", "apps/v1")
JOBSETS = _resource_kind("JobSet", "jobset.x-k8s.io/v1alpha2")
WORKLOADS = _resource_kind("Workload", "kueue.x-k8s.io/v1beta1")
REPLICASETS = ResourceKind(
    group="apps", version="v1", kind="ReplicaSet", plural="replicasets", namespaced=True, type=OwnerObject
)


def stateful_set(name: str, *, members: int, annotations: Object, spec: Object) -> Object:
    """A StatefulSet whose pods are created in parallel."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": members,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"set": name}},
            "template": {"metadata": {"annotations": annotations, "labels": {"set": name}}, "spec": spec},
        },
        "status": {},
    }


def make_jobset(name: str, *, members: int, annotations: Object, spec: Object) -> Object:
    """A JobSet with one Job, `NAME-w-0`."""
    template = {"metadata": {"annotations": annotations, "labels": {LABEL_JOBSET: name}}, "spec": spec}
    job = {"parallelism": members, "completions": members, "completionMode": "Indexed", "template": template}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"suspend": False, "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]},
        "status": {},
    }


def make_job(name: str, *, members: int, annotations: Object, spec: Object, queue: str = "") -> Object:
    """A Job; with a queue it is suspended until Kueue resumes it."""
    labels = {LABEL_QUEUE: queue} if queue else {}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "parallelism": members,
            "completions": members,
            "completionMode": "Indexed",
            "suspend": bool(queue),
            "template": {"metadata": {"annotations": annotations, "labels": {"job": name}}, "spec": spec},
        },
        "status": {},
    }


def statefulset_controller(store: ObjectStore) -> None:
    """Pods by ordinal: create missing pods, delete pods beyond the replicas."""
    for stateful in store.list_values(STATEFULSETS):
        name, replicas = stateful["metadata"]["name"], stateful["spec"]["replicas"]
        pods = {pod["metadata"]["name"]: pod for pod in store.list_owned(PODS, stateful["metadata"]["uid"])}
        names = [f"{name}-{number}" for number in range(replicas)]
        for pod_name in names:
            if pod_name not in pods:
                _make_pod(store, pod_name, stateful)
        for pod_name, pod in pods.items():
            if pod_name not in names and not pod["metadata"].get("deletionTimestamp"):
                store.mark_deleted(PODS, pod_name, "default")
        count = len(store.list_owned(PODS, stateful["metadata"]["uid"]))
        store.change(STATEFULSETS, name, {"status": {"replicas": count}}, "default")


def _make_pod(store: ObjectStore, name: str, owner: Object) -> None:
    template = json.loads(json.dumps(owner["spec"]["template"]))
    meta = {
        "name": name,
        "namespace": "default",
        "ownerReferences": [_owner_reference(owner, "StatefulSet", "apps/v1")],
    }
    store.put(
        PODS,
        {"metadata": template["metadata"] | meta, "spec": template["spec"], "status": {"phase": "Pending"}},
    )


def jobset_controller(store: ObjectStore) -> None:
    """A stand-in: the Jobs are suspended and resumed with the JobSet, which has their status."""
    for jobset in store.list_values(JOBSETS):
        name, off = jobset["metadata"]["name"], bool(jobset["spec"].get("suspend"))
        statuses = []
        for part in jobset["spec"]["replicatedJobs"]:
            child = f"{name}-{part['name']}-0"
            job = store.find(JOBS, child, "default")
            if job is None:
                _make_job(store, child, jobset, part["template"]["spec"])
            elif bool(job["spec"].get("suspend")) is not off:
                store.change(JOBS, child, {"spec": {"suspend": off}}, "default")
            status = job["status"] if job is not None else {}
            statuses.append(
                {"name": part["name"], "active": int(bool(status.get("active") or status.get("terminating")))}
            )
        conditions = [
            {"type": "Suspended", "status": str(off), "lastTransitionTime": timing.format_time(store.clock.now())}
        ]
        if statuses and all(
            _is_complete(store.find(JOBS, f"{name}-{status['name']}-0", "default")) for status in statuses
        ):
            conditions.append({"type": "Completed", "status": "True"})
        store.change(JOBSETS, name, {"status": {"replicatedJobsStatus": statuses, "conditions": conditions}}, "default")


def _is_complete(job: Object | None) -> bool:
    return job is not None and any(condition["type"] == "Complete" for condition in job["status"].get("conditions", []))


def _make_job(store: ObjectStore, name: str, owner: Object, spec: Object) -> None:
    body = json.loads(json.dumps(spec)) | {"suspend": bool(owner["spec"].get("suspend"))}
    body["template"]["metadata"]["labels"] |= {LABEL_JOBSET_UID: owner["metadata"]["uid"]}
    meta = {
        "name": name,
        "namespace": "default",
        "labels": {LABEL_JOBSET: owner["metadata"]["name"]},
        "ownerReferences": [_owner_reference(owner, "JobSet", "jobset.x-k8s.io/v1alpha2")],
    }
    store.put(JOBS, {"metadata": meta, "spec": body, "status": {}})


def kueue_controller(store: ObjectStore) -> None:
    """A stand-in with unlimited quota: each queued Job has a Workload of its name, and runs while that is active."""
    for job in store.list_values(JOBS):
        if LABEL_QUEUE not in job["metadata"].get("labels", {}):
            continue
        name = job["metadata"]["name"]
        workload = store.find(WORKLOADS, name, "default")
        if workload is None:
            reference = _owner_reference(job, "Job", "batch/v1")
            meta = {"name": name, "namespace": "default", "annotations": {}, "ownerReferences": [reference]}
            sets = [{"name": "main", "count": job["spec"]["parallelism"], "template": job["spec"]["template"]}]
            workload = {"metadata": meta, "spec": {"active": True, "podSets": sets}, "status": {}}
            store.put(WORKLOADS, workload)
        active = workload["spec"]["active"]
        remaining = job["status"].get("active") or job["status"].get("terminating")
        held = active or bool(remaining)  # quota is released when the last pod is gone
        conditions_by_type = {"Evicted": not active, "QuotaReserved": held, "Admitted": held}
        if _is_complete(job):
            conditions_by_type["Finished"] = True
        conditions = [{"type": kind, "status": str(value)} for kind, value in conditions_by_type.items()]
        store.change(WORKLOADS, name, {"status": {"conditions": conditions}}, "default")
        if bool(job["spec"].get("suspend")) is active:
            store.change(JOBS, name, {"spec": {"suspend": not active}}, "default")


def _owner_reference(owner: Object, kind: str, api_version: str) -> Object:
    meta = owner["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
