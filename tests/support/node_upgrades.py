"""A NodeUpgrade with everything in it, as the controller makes it for a rollout; changed where a test says so."""

from typing import Any

import msgspec

from tests.support.manifests import node_upgrade
from upgrader.api.v1alpha1 import NodeUpgrade

UID = "00000000-0000-0000-0000-0000000000aa"


def state(version: str, kubelet: str, letter: str, **changes: Any) -> dict[str, Any]:
    """What a node runs under one revision; `letter` fills digests and keys."""
    return {
        "revision": letter * 10,
        "kernel": "6.1.0-47-amd64",
        "driverVendor": "sim",
        "driverVersion": version,
        "driverImage": f"registry.example/driver@sha256:{letter * 64}",
        "driverKey": letter * 16,
        "pluginImage": f"registry.example/plugin@sha256:{letter * 64}",
        "pluginKey": letter * 16,
        "kubeletVersion": kubelet,
        "kubeletArtifact": f"registry.example/kubelet@sha256:{letter * 64}",
        "kubeletBinary": "/usr/bin/kubelet",
        "resourceName": "nvidia.com/gpu",
        **changes,
    }


def upgrade(
    *,
    source: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    node: str = "node-1",
    reboot: dict[str, Any] | None = None,
    level: str = "",
    **status: Any,
) -> NodeUpgrade:
    """From driver 560.1 and kubelet 1.34.4 to 570.10 and 1.35.4."""
    body = node_upgrade()
    body["metadata"] |= {"uid": UID, "creationTimestamp": "2026-11-21T09:00:00Z"}
    body["spec"] |= {
        "node": {"name": node, "uid": "uid-node-1"},
        "source": state("560.1", "1.34.4", "a") if source is None else source,
        "target": state("570.10", "1.35.4", "b") if target is None else target,
    }
    if reboot is not None:
        body["spec"]["reboot"] = reboot
    if level:
        body["spec"]["validation"] = level
    return msgspec.convert(body | {"status": status}, NodeUpgrade)
