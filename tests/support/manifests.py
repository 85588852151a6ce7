"""A valid manifest of each of our kinds, complete in its required fields; `changed` makes variants."""

import copy
from typing import Any

API = "gpu-upgrader.io/v1alpha1"


def gpu_stack(name: str = "pool-a") -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "GpuStack",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"pool": "a"},
            "driver": {"vendor": "sim", "version": "570.10", "unverified": "Allow"},
            "devicePlugin": {"image": "registry.example/plugin:1.0"},
        },
    }


def upgrade_plan(name: str = "pool-a-1") -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "UpgradePlan",
        "metadata": {"name": name},
        "spec": {"stack": "pool-a", "targetRevision": "0123456789"},
    }


def node_upgrade(name: str = "node-1-upgrade") -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "NodeUpgrade",
        "metadata": {"name": name},
        "spec": {
            "stack": "pool-a",
            "plan": "pool-a-1",
            "group": "group-1",
            "node": {"name": "node-1", "uid": "00000000-0000-0000-0000-000000000001"},
            "reason": "Rollout",
            "source": {"revision": "0000000001", "driverVendor": "sim", "driverVersion": "560.1"},
            "target": {"revision": "0123456789", "driverVendor": "sim", "driverVersion": "570.10"},
        },
    }


def checkpoint_request(name: str = "gang-1", namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "CheckpointRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "gang": "default/Job/train",
            "plan": "pool-a-1",
            "group": "group-1",
            "owner": {"kind": "Job", "name": "train", "uid": "00000000-0000-0000-0000-00000000000a"},
            "members": [
                {
                    "pod": "train-0",
                    "uid": "00000000-0000-0000-0000-00000000000b",
                    "node": "node-1",
                    "container": "trainer",
                }
            ],
            "requestId": 100,
            "askedAt": "2026-11-21T09:00:00Z",
            "parkSeconds": 2100,
        },
    }


def driver_image(name: str = "sim-570.10") -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "DriverImage",
        "metadata": {"name": name},
        "spec": {
            "vendor": "sim",
            "version": "570.10",
            "kernel": "6.1.0-40-amd64",
            "image": "registry.example/driver:570.10",
        },
    }


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted path; a value of None removes the field."""
    result = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    target = result
    for parent in parents:
        target = target.setdefault(parent, {})
    if value is None:
        target.pop(last)
    else:
        target[last] = value
    return result
