"""Objects as they come over the wire, and the facts that are seen in them."""

from datetime import UTC, datetime

import msgspec

from tests.support.manifests import gpu_stack
from upgrader.api import kubernetes as k
from upgrader.api.resources import owner_resource
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.model.fleet import MemberFacts, NodeFacts, Owner
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.core.workloads.owner_objects import Work
from upgrader.reconcile.facts.owner_reading import work_of

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


OWN = "gpu-upgrader-system"
RESOURCE = "nvidia.com/gpu"
GPUS = PoolGpus(resource=RESOURCE)


def wire(body, type_):
    return msgspec.convert(body, type_)


STACK = wire(gpu_stack(), GpuStack)


def node(name="a", labels=None, annotations=None, spec=None, **status):
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels or {}, "annotations": annotations or {}}
    return wire({"metadata": meta, "spec": spec or {}, "status": {**ready, **status}}, k.Node)


def facts(**changes):
    return NodeFacts(**{"name": "a", "uid": "uid-a", "kernel": "", **changes})


REQUESTS = {
    "name": "requests",
    "downwardAPI": {
        "items": [
            {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['gpu-upgrader.io/{file}']"}}
            for file in ("checkpoint-request", "park-seconds")
        ]
    },
}


VOLUMES = [
    REQUESTS,
    {"name": "answers", "emptyDir": {}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
]


MOUNTS = [
    {"name": "requests", "mountPath": "/etc/gpu-upgrader/"},
    {"name": "answers", "mountPath": "/run/checkpoint"},
    {"name": "data", "mountPath": "/data"},
]


def pod(name="train-0", at="a", *, owner=("Job", "train"), volumes=VOLUMES, mounts=MOUNTS, gpus="8", **meta):
    references = [{"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}", "controller": True}] if owner else []
    for one in references:
        one["apiVersion"] = {"Job": "batch/v1"}.get(one["kind"], "apps/v1")
    trainer = {
        "name": "trainer",
        "volumeMounts": mounts,
        "resources": {"limits": {RESOURCE: gpus}} if gpus else {},
    }
    return wire(
        {
            "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "ownerReferences": references} | meta,
            "spec": {"nodeName": at, "containers": [trainer, {"name": "sidecar"}], "volumes": volumes},
            "status": {"phase": "Running"},
        },
        k.Pod,
    )


def member(**changes):
    values = {
        "pod": "train-0",
        "uid": "uid-train-0",
        "namespace": "ml",
        "node": "a",
        "container": "trainer",
        "phase": "Running",
        "gpus": 8,
        "ephemeral_paths": ("/etc/gpu-upgrader/", "/run/checkpoint"),
        "volume_paths": ("/data",),
        "mounted": True,
        "answers_mounted": True,
    }
    return MemberFacts(**{**values, **changes})


def owner(kind="Job", name="train", api_version="batch/v1"):
    return Owner(kind=kind, name=name, uid=f"uid-{name}", api_version=api_version)


def owned(kind="Job", name="train", *, api_version="batch/v1", by=(), annotations=None, labels=None, **body):
    """An owner as it comes over the wire; `by`: who owns it, the first one controls it."""
    references = [
        {"kind": one.kind, "name": one.name, "uid": one.uid, "apiVersion": one.api_version, "controller": number == 0}
        for number, one in enumerate(by)
    ]
    meta = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "ownerReferences": references,
        "annotations": annotations or {},
        "labels": labels or {},
    }
    return work_of(owner_resource(owner_kind(kind, api_version)), wire({"metadata": meta, **body}, k.OwnerObject))


def work(**changes):
    return Work(**{"owner": owner(), "namespace": "ml", **changes})


def budget(selector, allowed=0):
    meta = {"name": "keep", "namespace": "ml"}
    spec = {} if selector is None else {"selector": selector}
    return wire({"metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}, k.PodDisruptionBudget)
