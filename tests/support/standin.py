"""Stand-ins for the controllers of Kueue and JobSet on a real API server: simulated, as small as stopping needs them.

They set the conditions that those projects publish and switch Jobs; the pods are made and deleted by the cluster's own
Job controller. Kueue's has one queue with a quota of GPUs: who is deactivated gives its quota up once its pods are
gone, the next in line takes it, and who is activated again goes to the end of the line.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.support.background import Background
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import ConflictError, NotFoundError
from upgrader.core.patches import value_at
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.kube.client import KubeCluster
from upgrader.reconcile.checkpoint_request.live_owners import resource_of

Object = dict[str, Any]

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
GPU = "nvidia.com/gpu"
TICK_SECONDS = 0.1


def resource(api_version: str, kind: str) -> ResourceKind[Object]:
    """Of a kind in core.workloads.owner_kinds, objects whole."""
    row = owner_kind(kind, api_version)
    assert row is not None
    return resource_of(row, api_version)


JOBS = resource("batch/v1", "Job")
JOBSETS = resource("jobset.x-k8s.io/v1alpha2", "JobSet")
WORKLOADS = resource("kueue.x-k8s.io/v1beta1", "Workload")


def meta_of(body: Object) -> ObjectMeta:
    return msgspec.convert(body["metadata"], ObjectMeta)


def condition(body: Object, kind: str) -> Object:
    """A status condition; empty where it is not set."""
    found: list[Object] = value_at(body, ("status", "conditions")) or []
    return next((one for one in found if one["type"] == kind), {})


def conditions(body: Object, **said: tuple[bool, str]) -> list[Object]:
    """All conditions with some of them changed: name = (status, reason)."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept = [one for one in value_at(body, ("status", "conditions")) or [] if one["type"] not in said]
    for kind, (status, reason) in said.items():
        old, text = condition(body, kind), str(status)
        since = old["lastTransitionTime"] if old.get("status") == text else now
        kept.append({"type": kind, "status": text, "reason": reason, "message": reason, "lastTransitionTime": since})
    return kept


class StandIn(Background):
    """Both controllers, for one namespace."""

    def __init__(self, api: KubeCluster, namespace: str, *, gpus: int) -> None:
        self.api, self.namespace, self.gpus = api, namespace, gpus
        self._line: list[str] = []
        """Uids of workloads without quota, in the order in which they get some."""

    async def _run(self) -> None:
        while True:
            # As every controller does: what somebody else changed meanwhile is looked at again.
            with contextlib.suppress(ConflictError, NotFoundError):
                await self._jobsets()
            with contextlib.suppress(ConflictError, NotFoundError):
                await self._kueue()
            await asyncio.sleep(TICK_SECONDS)

    # ---- JobSet

    async def _jobsets(self) -> None:
        jobs = await self.api.list(JOBS, self.namespace)
        for one in await self.api.list(JOBSETS, self.namespace):
            mine = {job["metadata"]["name"]: job for job in jobs if _owned(job, one)}
            off = bool(value_at(one, ("spec", "suspend")))
            for name, body in _children(one):
                job = mine.get(name)
                if job is None:
                    await self.api.create(JOBS, body)
                elif bool(job["spec"].get("suspend")) is not off:
                    await self.api.merge(JOBS, meta_of(job), {"spec": {"suspend": off}})
            await self._say_of_jobset(one, mine, off=off)

    async def _say_of_jobset(self, one: Object, jobs: dict[str, Object], *, off: bool) -> None:
        said = []
        for replicated in one["spec"]["replicatedJobs"]:
            prefix = f"{one['metadata']['name']}-{replicated['name']}-"
            mine = [job for name, job in jobs.items() if name.startswith(prefix)]
            counts = {
                "active": sum(bool(value_at(job, ("status", "active"))) for job in mine),
                "suspended": sum(condition(job, "Suspended").get("status") == "True" for job in mine),
            }
            said.append({"name": replicated["name"], "ready": 0, "succeeded": 0, "failed": 0, **counts})
        status: Object = {"replicatedJobsStatus": said}
        if off or condition(one, "Suspended"):
            status["conditions"] = conditions(one, Suspended=(off, "SuspendedJobs" if off else "ResumeJobs"))
        await self._status(JOBSETS, one, status)

    # ---- Kueue

    async def _kueue(self) -> None:
        jobs = {one["metadata"]["uid"]: one for one in await self.api.list(JOBS, self.namespace)}
        queued = {uid: job for uid, job in jobs.items() if QUEUE_LABEL in job["metadata"].get("labels", {})}
        workloads = {_owner_uid(one): one for one in await self.api.list(WORKLOADS, self.namespace)}
        for uid, job in queued.items():
            if uid not in workloads:
                await self.api.create(WORKLOADS, _workload(job))
        for uid, one in workloads.items():
            if uid in queued:
                await self._reconcile(one, queued[uid], list(workloads.values()))

    async def _reconcile(self, one: Object, job: Object, everybody: list[Object]) -> None:
        uid, active = one["metadata"]["uid"], one["spec"]["active"]
        reserved = condition(one, "QuotaReserved").get("status") == "True"
        if condition(job, "Complete") or condition(job, "Failed"):
            await self._status(WORKLOADS, one, {"conditions": conditions(one, Finished=(True, "Succeeded"))})
        elif not active:
            await self._evict(one, job, reserved=reserved)
            if uid in self._line:
                self._line.remove(uid)
        elif reserved:
            await self._switch(job, off=False)
        else:
            await self._queue(one, everybody)

    async def _evict(self, one: Object, job: Object, *, reserved: bool) -> None:
        said = conditions(one, Evicted=(True, "Deactivated"), Requeued=(False, "Deactivated"))
        await self._status(WORKLOADS, one, {"conditions": said})
        await self._switch(job, off=True)
        gone = (
            job["spec"].get("suspend")
            and not value_at(job, ("status", "active"))
            and not value_at(job, ("status", "terminating"))
        )
        if reserved and gone:
            fresh = await self.api.get(WORKLOADS, one["metadata"]["name"], self.namespace)
            assert fresh is not None
            said = conditions(fresh, QuotaReserved=(False, "Pending"), Admitted=(False, "NoReservation"))
            await self._status(WORKLOADS, fresh, {"conditions": said, "admission": None})

    async def _queue(self, one: Object, everybody: list[Object]) -> None:
        if one["metadata"]["uid"] not in self._line:
            self._line.append(one["metadata"]["uid"])
        used = sum(_gpus(other) for other in everybody if condition(other, "QuotaReserved").get("status") == "True")
        if self._line[0] != one["metadata"]["uid"] or used + _gpus(one) > self.gpus:
            said = conditions(one, QuotaReserved=(False, "Pending"), Admitted=(False, "NoReservation"))
            await self._status(WORKLOADS, one, {"conditions": said})
            return
        said = conditions(
            one,
            QuotaReserved=(True, "QuotaReserved"),
            Admitted=(True, "Admitted"),
            Evicted=(False, "QuotaReserved"),
            Requeued=(True, "Reactivated"),
        )
        sets = [{"name": each["name"], "count": each["count"]} for each in one["spec"]["podSets"]]
        admission = {"clusterQueue": "gpus", "podSetAssignments": sets}
        await self._status(WORKLOADS, one, {"conditions": said, "admission": admission})
        self._line.pop(0)
        # Everybody else is looked at with this quota taken.
        one.setdefault("status", {})["conditions"] = said

    async def _switch(self, job: Object, *, off: bool) -> None:
        if bool(job["spec"].get("suspend")) is not off:
            await self.api.merge(JOBS, meta_of(job), {"spec": {"suspend": off}})

    async def _status(self, kind: ResourceKind[Object], one: Object, status: Object) -> None:
        before = one.get("status", {})
        if any(before.get(name) != part for name, part in status.items()):
            await self.api.merge(kind, meta_of(one), {"status": status}, "status")


def _children(jobset: Object) -> Iterator[tuple[str, Object]]:
    meta = jobset["metadata"]
    for replicated in jobset["spec"]["replicatedJobs"]:
        for number in range(replicated["replicas"]):
            name = f"{meta['name']}-{replicated['name']}-{number}"
            spec = msgspec.json.decode(msgspec.json.encode(replicated["template"]["spec"]))
            labels = {JOBSET_LABEL: meta["name"], "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"]}
            spec["template"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
            spec["suspend"] = bool(jobset["spec"].get("suspend"))
            yield name, {"metadata": _meta(name, jobset, JOBSETS, labels), "spec": spec}


def _workload(job: Object) -> Object:
    name = f"job-{job['metadata']['name']}"
    sets = [{"name": "main", "count": job["spec"]["parallelism"], "template": job["spec"]["template"]}]
    spec = {"queueName": job["metadata"]["labels"][QUEUE_LABEL], "podSets": sets}
    return {"metadata": _meta(name, job, JOBS, {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}), "spec": spec}


def _meta(name: str, owner: Object, kind: ResourceKind[Object], labels: dict[str, str]) -> Object:
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    namespace = owner["metadata"]["namespace"]
    return {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [reference]}


def _owned(child: Object, owner: Object) -> bool:
    return _owner_uid(child) == owner["metadata"]["uid"]


def _owner_uid(child: Object) -> str:
    references = child["metadata"].get("ownerReferences", [])
    return next((str(one["uid"]) for one in references if one.get("controller")), "")


def _gpus(workload: Object) -> int:
    return sum(
        each["count"] * int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
        for each in workload["spec"]["podSets"]
        for container in each["template"]["spec"]["containers"]
    )
