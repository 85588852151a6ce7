"""Common parts of manifests."""

import hashlib
import json
from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind

Manifest = dict[str, Any]

TOLERATE_ALL = [{"operator": "Exists"}]
"""Tolerates all taints: those of upgrades and of the pool, and a cordon. Pods that serve a node run on it in any
case.
"""

PULL_POLICY = "IfNotPresent"
"""Images are pinned by digest, so the image on the node is the right one; another pull would require the registry."""

LOGS_ON_ERROR = {"terminationMessagePolicy": "FallbackToLogsOnError"}

PLUGIN_SOCKETS = "/var/lib/kubelet/device-plugins"
"""Hardcoded in the kubelet, independent of its --root-dir."""

POD_RESOURCES = "/var/lib/kubelet/pod-resources"
"""Folder of the pod resources API of a kubelet with the default --root-dir."""

METRICS_PORT = 9400
"""Port of exporters, as that of dcgm-exporter."""

CDI = "/var/run/cdi"
"""Folder in which container runtimes find CDI specifications that are generated at run time."""

NODE_PROGRAM = ("python3", "-m", "upgrader.node")


def host_path(name: str, path: str) -> Manifest:
    """A hostPath volume; the folder is created if it does not exist."""
    return {"name": name, "hostPath": {"path": path, "type": "Directory" if path == "/" else "DirectoryOrCreate"}}


def empty_dir_volume(name: str) -> Manifest:
    """A volume that is deleted with its pod."""
    return {"name": name, "emptyDir": {}}


def owner_reference(kind: ResourceKind[Any], meta: ObjectMeta) -> Manifest:
    """The ownerReference of an object that is deleted with its owner and does not block the deletion of the owner."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def volume_mount(name: str, path: str, **more: Any) -> Manifest:  # noqa: ANN401 - any field of a VolumeMount
    """A volume mount of a container."""
    return {"name": name, "mountPath": path, **more}


def with_manifest_hash(manifest: Manifest) -> Manifest:
    """The manifest with a hash of itself as annotation, by which changes are detected despite defaults of the API
    server.
    """
    text = json.dumps(manifest, sort_keys=True)
    manifest["metadata"]["annotations"][names.ANNOTATION_MANIFEST] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return manifest
