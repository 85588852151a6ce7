"""The DaemonSet that detects features of its nodes. Its pods only report; the controller writes the labels. Pure."""

from upgrader.api import names
from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.naming import object_name
from upgrader.core.node_protocol.node_places import HOST_ROOT
from upgrader.stack.naming import NODE_FEATURES
from upgrader.stack.parts import (
    NODE_PROGRAM,
    PULL_POLICY,
    TOLERATE_ALL,
    Manifest,
    owner_reference,
    volume_mount,
    with_manifest_hash,
)
from upgrader.stack.settings import StackSettings

NODE_FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "boot": "/proc/sys/kernel/random/boot_id",
    "release": "/etc/os-release",
}
NODE_FOLDERS = {"modules": "/lib"}
"""Read-only mounts of the pods, in addition to what every container has (/sys/bus/pci, /proc/uptime): three files,
and the parent folder of /lib/modules, which does not exist on every machine.
"""

MAX_UNAVAILABLE = "10%"
"""Pods that are replaced at the same time after a change of the template: nothing waits for them."""

_NOBODY_UID = 65534


def node_features_name(stack: GpuStack) -> str:
    """Name of the DaemonSet; a stack that is created again under its name has another one."""
    return object_name(f"node-features-{stack.metadata.name}", stack.metadata.uid)


def node_features_daemonset(stack: GpuStack, settings: StackSettings) -> Manifest:
    """The DaemonSet of a stack whose pods detect features on each boot and when another kernel is installed.

    The pods have no token and no rights and run as user nobody: the kubelet copies their termination message into the
    status of the pod, and a kubelet can only write the status of its own pods. The stack owns the DaemonSet.
    """
    labels = {names.LABEL_COMPONENT: NODE_FEATURES, names.LABEL_STACK: stack.metadata.name}
    return with_manifest_hash(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {
                "name": node_features_name(stack),
                "namespace": settings.namespace,
                "labels": labels,
                "annotations": {},
                "ownerReferences": [owner_reference(GPU_STACKS, stack.metadata)],
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": MAX_UNAVAILABLE}},
                "template": {"metadata": {"labels": labels}, "spec": _pod_spec(stack.spec.node_selector, settings)},
            },
        }
    )


def _pod_spec(node_selector: dict[str, str], settings: StackSettings) -> Manifest:
    paths = {**NODE_FILES, **NODE_FOLDERS}
    mounts = {"volumeMounts": [volume_mount(name, f"{HOST_ROOT}{path}", readOnly=True) for name, path in paths.items()]}
    read = _labeller_container("read", [*NODE_PROGRAM, "node-labels"], settings) | mounts
    watch = _labeller_container("watch", [*NODE_PROGRAM, "node-labels", "--watch"], settings) | mounts
    files = [{"name": name, "hostPath": {"path": path, "type": "File"}} for name, path in NODE_FILES.items()]
    folders = [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in NODE_FOLDERS.items()]
    return {
        "nodeSelector": node_selector,
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": TOLERATE_ALL,
        "priorityClassName": settings.priority_class,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY_UID,
            "runAsGroup": _NOBODY_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [read],
        "containers": [watch],
        "volumes": [*files, *folders],
    }


def _labeller_container(name: str, command: list[str], settings: StackSettings) -> Manifest:
    return {
        "name": name,
        "image": settings.node_image,
        "imagePullPolicy": PULL_POLICY,
        "command": command,
        "resources": {"requests": {"cpu": "1m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
