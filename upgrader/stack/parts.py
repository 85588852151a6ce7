"""Pieces that several of our manifests share."""

from typing import Any

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


def mount(name: str, path: str, **more: Any) -> Manifest:  # noqa: ANN401 - any field of a VolumeMount
    """A volume in a container."""
    return {"name": name, "mountPath": path, **more}
