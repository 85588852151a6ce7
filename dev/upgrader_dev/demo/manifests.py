"""The objects of the demo and of the e2e tests: driver images, a stack, training jobs. Pure."""

from collections.abc import Mapping
from typing import Any

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS

POOL = {"gpu-upgrader.io/pool": "training"}
RESOURCE = "nvidia.com/gpu"
BOX_KUBELET = "/var/lib/box/bin/kubelet"
SHARED = "/var/lib/shared"
CHECKPOINTS = "/checkpoints"

Manifest = dict[str, Any]


def driver_image(version: str, kernel: str, image: str) -> Manifest:
    """A DriverImage with an existing image."""
    return {
        "apiVersion": DRIVER_IMAGES.api_version,
        "kind": DRIVER_IMAGES.kind,
        "metadata": {"name": f"sim-{version}-{kernel}".lower().replace("_", "-").replace("+", "-")},
        "spec": {"vendor": "sim", "version": version, "kernel": kernel, "image": image},
    }


def stack_manifest(name: str, *, driver: str, plugin: str, kubelet: str, artifact: str) -> Manifest:
    """A stack for the boxes of the pool; the path of their kubelet is that of the box's supervisor."""
    return {
        "apiVersion": GPU_STACKS.api_version,
        "kind": GPU_STACKS.kind,
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": POOL,
            "driver": {"vendor": "sim", "version": driver, "unverified": "Allow"},
            "devicePlugin": {"image": plugin, "resourceName": RESOURCE},
            "kubelet": {"manage": True, "version": kubelet, "artifact": artifact, "binary": BOX_KUBELET},
        },
    }


def trainer_job(
    name: str,
    *,
    image: str,
    members: int,
    gpus: int,
    arguments: tuple[str, ...] = (),
    annotations: Mapping[str, str] | None = None,
    template: Manifest | None = None,
) -> Manifest:
    """An Indexed Job of trainers that train in step; `template` is merged into the pod's spec."""
    trainer_arguments = ["--job", name, "--members", str(members), "--devices", str(gpus), *arguments]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": members,
            "completions": members,
            "completionMode": "Indexed",
            "backoffLimit": 1000,
            "template": {
                "metadata": {
                    "annotations": {
                        names.ANNOTATION_METHOD: "file",
                        names.ANNOTATION_TIMEOUT: "60s",
                        **(annotations or {}),
                    }
                },
                "spec": _trainer_pod(image, trainer_arguments, gpus) | (template or {}),
            },
        },
    }


def _trainer_pod(image: str, arguments: list[str], gpus: int) -> Manifest:
    container: Manifest = {
        "name": "trainer",
        "image": image,
        "args": arguments,
        "env": [
            _field_variable("POD_UID", "metadata.uid"),
            _field_variable("POD_NAME", "metadata.name"),
            _field_variable("POD_IP", "status.podIP"),
            _field_variable("NODE_NAME", "spec.nodeName"),
        ],
        "resources": {"limits": {RESOURCE: str(gpus)}},
        "volumeMounts": [
            {"name": "request", "mountPath": "/etc/gpu-upgrader"},
            {"name": "answers", "mountPath": "/run/checkpoint"},
            {"name": "checkpoints", "mountPath": CHECKPOINTS},
        ],
    }
    items = [
        {"path": "checkpoint-request", "fieldRef": _annotation_variable(names.ANNOTATION_REQUEST)},
        {"path": "park-seconds", "fieldRef": _annotation_variable(names.ANNOTATION_PARK_SECONDS)},
    ]
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "containers": [container],
        "volumes": [
            {"name": "request", "downwardAPI": {"items": items}},
            {"name": "answers", "emptyDir": {}},
            {"name": "checkpoints", "hostPath": {"path": SHARED, "type": "Directory"}},
        ],
    }


def _field_variable(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _annotation_variable(name: str) -> Manifest:
    return {"fieldPath": f"metadata.annotations['{name}']"}
