"""The DaemonSet that reads what its nodes are. Its pods only report; the controller writes the labels. Pure."""

from upgrader.api import names
from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.naming import object_name
from upgrader.core.node_protocol.node_places import HOST_ROOT
from upgrader.stack.naming import NODE_FEATURES
from upgrader.stack.parts import EVERYWHERE, NODE_PROGRAM, PULL, Manifest, marked, mount, owned_by
from upgrader.stack.settings import StackSettings

NODE_FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "boot": "/proc/sys/kernel/random/boot_id",
    "release": "/etc/os-release",
}
NODE_FOLDERS = {"modules": "/lib"}
"""All of the node that the pods see beside what every container sees (/sys/bus/pci, /proc/uptime): three files, and the
folder that has /lib/modules in it, which itself is not there on every machine. Read-only."""

AT_ONCE = "10%"
"""Of the pods, when their template changes: nothing waits for them, and no label changes by it."""

_NOBODY = 65534


def node_features_name(stack: GpuStack) -> str:
    """Name of its DaemonSet: another one for a stack that is made again."""
    return object_name(f"node-features-{stack.metadata.name}", stack.metadata.uid)


def node_features_daemonset(stack: GpuStack, settings: StackSettings) -> Manifest:
    """Reads at each start of a pod, so on each boot, and when another kernel is installed; leaves a message each time.

    It has no token and no rights, and is nobody: the kubelet carries its message into the pod's status, and a kubelet
    may write the status of its own pods only. It goes with its stack.
    """
    labels = {names.LABEL_COMPONENT: NODE_FEATURES, names.LABEL_STACK: stack.metadata.name}
    return marked(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {
                "name": node_features_name(stack),
                "namespace": settings.namespace,
                "labels": labels,
                "annotations": {},
                "ownerReferences": [owned_by(GPU_STACKS, stack.metadata)],
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": AT_ONCE}},
                "template": {"metadata": {"labels": labels}, "spec": _pod(stack.spec.node_selector, settings)},
            },
        }
    )


def _pod(node_selector: dict[str, str], settings: StackSettings) -> Manifest:
    seen = {**NODE_FILES, **NODE_FOLDERS}
    mounts = {"volumeMounts": [mount(name, f"{HOST_ROOT}{path}", readOnly=True) for name, path in seen.items()]}
    read = _container("read", [*NODE_PROGRAM, "node-labels"], settings) | mounts
    watch = _container("watch", [*NODE_PROGRAM, "node-labels", "--watch"], settings) | mounts
    files = [{"name": name, "hostPath": {"path": path, "type": "File"}} for name, path in NODE_FILES.items()]
    folders = [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in NODE_FOLDERS.items()]
    return {
        "nodeSelector": node_selector,
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": EVERYWHERE,
        "priorityClassName": settings.priority_class,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [read],
        "containers": [watch],
        "volumes": [*files, *folders],
    }


def _container(name: str, command: list[str], settings: StackSettings) -> Manifest:
    return {
        "name": name,
        "image": settings.node_image,
        "imagePullPolicy": PULL,
        "command": command,
        "resources": {"requests": {"cpu": "1m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
