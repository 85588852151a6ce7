"""A log of writes for the judge of chaos runs, written by hand: what a cluster and a controller would have done."""

import json
from datetime import timedelta

from upgrader_dev.chaos.laws.journal import Author, JournalEntry
from upgrader_dev.chaos.laws.judge import Judge
from upgrader_dev.simulated.cluster.ports import START
from upgrader_dev.simulated.cluster.trainers import ACK

NAMESPACE = "gpu-upgrader-system"
TAINT = {"key": "gpu-upgrader.io/maintenance", "value": "c-1", "effect": "NoSchedule"}
RECORD = {"gpu-upgrader.io/stopped": json.dumps({"plan": "up", "request": "request"})}


class Log:
    """Writes entries one after the other, each a second after the one before.

    `late`: by how many seconds the controller's writes arrive later than they were sent.
    """

    def __init__(self):
        self.files = {}
        self.judge = Judge(self.files, dict)
        self.objects = {}
        self.now = START
        self.late = 0

    def put(self, kind, name, *, by=Author.WORLD, namespace="default", api="v1", **parts):
        self._entry(kind, namespace, name, by, {"apiVersion": api, "kind": kind, **parts})

    def gone(self, kind, name, *, by=Author.WORLD, namespace="default"):
        self._entry(kind, namespace, name, by, None)

    def _entry(self, kind, namespace, name, by, after):
        self.now += timedelta(seconds=1)
        key = kind, namespace, name
        before = self.objects.get(key)
        if after is not None:
            after["metadata"] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"} | after.get("metadata", {})
        self.objects[key] = after
        verb = "merge" if by is Author.CONTROLLER else ""
        sent = self.now - timedelta(seconds=self.late) if verb else None
        self.judge.judge_entry(
            JournalEntry(at=self.now, kind=kind, author=by, verb=verb, before=before, after=after, sent=sent)
        )

    @property
    def laws(self):
        return [one.law for one in self.judge.violations]


def node(log, name="gpu-0", by=Author.WORLD, *, taints=(), annotations=None, labels=None, **spec):
    capacity = {"capacity": {"nvidia.com/gpu": "8"}}
    meta = {"annotations": annotations or {}, "labels": labels or {}}
    log.put("Node", name, by=by, namespace="", metadata=meta, spec={"taints": list(taints), **spec}, status=capacity)


def job(log, *, suspend=False, by=Author.WORLD, annotations=None):
    meta = {"annotations": annotations or {}}
    log.put("Job", "gang", by=by, api="batch/v1", metadata=meta, spec={"suspend": suspend})


def member(log, name="gang-0", *, owner="Job", phase="Running", on="gpu-0", asked="7", by=Author.WORLD, **meta):
    references = [{"kind": owner, "name": "gang", "uid": "uid-gang", "controller": True}]
    annotations = {"gpu-upgrader.io/checkpoint-method": "file", "gpu-upgrader.io/checkpoint-request": asked}
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    log.put(
        "Pod",
        name,
        by=by,
        metadata={"ownerReferences": references, "annotations": annotations, **meta},
        spec={"nodeName": on, "containers": [container]},
        status={"phase": phase},
    )


def acknowledges(log, name="gang-0", *, request=7, step=5, parked=True):
    said = {"requestId": request, "podUid": f"uid-{name}", "step": step, "parked": parked}
    log.files[f"uid-{name}", ACK] = json.dumps(said).encode()


def request(log, phase="Stopping", by=Author.CONTROLLER, deadline="2026-11-21T10:00:00Z", **spec):
    log.put("CheckpointRequest", "request", by=by, spec=spec, status={"phase": phase, "deadline": deadline})


def upgrade(log, phase="Upgrading", *, plan="up", deadline="2026-11-21T10:00:00Z", by=Author.CONTROLLER, **status):
    spec = {"plan": plan, "group": "c-1", "node": {"name": "gpu-0"}}
    log.put("NodeUpgrade", "v", by=by, namespace="", spec=spec, status={"phase": phase, "deadline": deadline, **status})


def prepared(log, by=Author.CONTROLLER, namespace=NAMESPACE):
    meta = {
        "labels": {"gpu-upgrader.io/component": "prepare"},
        "annotations": {"gpu-upgrader.io/node-upgrade": "v"},
    }
    log.put("Pod", "prepare-v", by=by, namespace=namespace, metadata=meta, spec={}, status={"phase": "Pending"})
    log.put("Pod", "prepare-v", namespace=namespace, metadata=meta, spec={}, status={"phase": "Succeeded"})


def upgrade_job(log, name="upgrade-v", *, owner="uid-v"):
    meta = {
        "labels": {"gpu-upgrader.io/component": "upgrade"},
        "annotations": {"gpu-upgrader.io/node-upgrade": "v"},
        "ownerReferences": [{"kind": "NodeUpgrade", "name": "v", "uid": owner}],
    }
    for suspend in (True, False):
        spec = {"suspend": suspend, "template": {"spec": {"nodeName": "gpu-0"}}}
        log.put("Job", name, by=Author.CONTROLLER, namespace=NAMESPACE, api="batch/v1", metadata=meta, spec=spec)
        if suspend:
            assert log.laws == []


def stop(log):
    job(log, suspend=True, by=Author.CONTROLLER, annotations=RECORD)
