"""A pod that holds a device of a driver and requests no GPU, for `upgrader first-node`. Pure."""

from upgrader.api import names
from upgrader.core.naming import object_name
from upgrader.stack.naming import HOLDER
from upgrader.stack.parts import PULL_POLICY, TOLERATE_ALL, Manifest
from upgrader.stack.settings import StackSettings

NAMESPACE = "default"
"""Not the namespace of the operator, whose pods end before a driver is unloaded."""
SECONDS = 300
"""The pod ends by itself after this time."""

_HOLD = 'exec 3< "$0"; exec sleep 300'


def holder_pod(node: str, run: str, device: str, settings: StackSettings) -> Manifest:
    """The pod; it fails on a node without the device.

    Args:
        node: name of the Node.
        run: name of this run.
        device: path of the device file.
        settings: settings of the stack.
    """
    container = {
        "name": HOLDER,
        "image": settings.node_image,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/bin/sh", "-c", _HOLD, device],
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": object_name(f"{HOLDER}-{node}", run),
            "namespace": NAMESPACE,
            "labels": {names.LABEL_COMPONENT: HOLDER},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": TOLERATE_ALL,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
