"""Pieces that several of our manifests share."""

from typing import Any

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind

Manifest = dict[str, Any]

EVERYWHERE = [{"operator": "Exists"}]
"""Our taint, the pool's own, a person's cordon: what serves a node runs on it whatever keeps others away."""

PULL = "IfNotPresent"
"""Images are pinned by digest, so the one on the node is the right one; pulling anew would need the registry again."""

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
