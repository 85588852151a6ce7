"""Deployments and DaemonSets above pods with GPUs, as the API server has them: what a person may annotate."""

from collections.abc import Mapping

from upgrader.api.resources import NODES, owner_resource
from upgrader.core.workloads.owner_kinds import DECLARING
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.placing import RESOURCE

_KINDS = {kind.kind: owner_resource(kind) for kind in DECLARING}


def deployed(store: ObjectStore, name: str, annotations: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """The ReplicaSet of a pod of `fleet.add_replica`, and its Deployment; `annotations` by kind."""
    said = annotations or {}
    above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"d-{name}", "controller": True}
    for kind, uid, references in (("ReplicaSet", f"rs-{name}", [above]), ("Deployment", f"d-{name}", [])):
        meta = {"name": name, "namespace": "default", "uid": uid, "ownerReferences": references}
        store.put(_KINDS[kind], {"metadata": {**meta, "annotations": dict(said.get(kind, {}))}})


def daemon(store: ObjectStore, name: str, *, node: str, gpus: int, annotations: Mapping[str, str]) -> None:
    """A DaemonSet whose pod on one node asks for GPUs."""
    store.change(NODES, node, {"metadata": {"labels": {"example.com/daemon": name}}})
    limits = {"limits": {RESOURCE: str(gpus)}}
    pods = {
        "nodeSelector": {"example.com/daemon": name},
        "containers": [{"name": "main", "resources": limits}],
    }
    meta = {"name": name, "namespace": "default", "uid": f"ds-{name}", "annotations": dict(annotations)}
    store.put(_KINDS["DaemonSet"], {"metadata": meta, "spec": {"template": {"spec": pods}}})
