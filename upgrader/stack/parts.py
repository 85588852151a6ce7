"""Pieces that several of our manifests share."""

import hashlib
import json
from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind

Manifest = dict[str, Any]

EVERYWHERE = [{"operator": "Exists"}]
"""Our taint, the pool's own, a person's cordon: what serves a node runs on it whatever keeps others away."""

PULL = "IfNotPresent"
"""Images are pinned by digest, so the one on the node is the right one; pulling anew would need the registry again."""

PLUGIN_SOCKETS = "/var/lib/kubelet/device-plugins"
"""Hardcoded in the kubelet, whatever its --root-dir is."""

POD_RESOURCES = "/var/lib/kubelet/pod-resources"
"""Where a kubelet with the default --root-dir serves its pod resources API."""

METRICS_PORT = 9400
"""Of exporters: dcgm-exporter's."""

CDI = "/var/run/cdi"
"""Where container runtimes look for descriptions of devices that are made while the node runs."""

NODE_PROGRAM = ("python3", "-m", "upgrader.node")


def host_path(name: str, path: str) -> Manifest:
    """A volume with a folder of the node, made where it is not there."""
    return {"name": name, "hostPath": {"path": path, "type": "Directory" if path == "/" else "DirectoryOrCreate"}}


def scratch(name: str) -> Manifest:
    """A volume that goes with its pod."""
    return {"name": name, "emptyDir": {}}


def owned_by(kind: ResourceKind[Any], meta: ObjectMeta) -> Manifest:
    """The ownerReference of what goes with an object of ours, and is held up by nobody when that is deleted."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def mount(name: str, path: str, **more: Any) -> Manifest:  # noqa: ANN401 - any field of a VolumeMount
    """A volume in a container."""
    return {"name": name, "mountPath": path, **more}


def marked(manifest: Manifest) -> Manifest:
    """With a hash of itself, by which a change is seen without comparing what the API server adds."""
    text = json.dumps(manifest, sort_keys=True)
    manifest["metadata"]["annotations"][names.ANNOTATION_MANIFEST] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return manifest
