"""A pod that requests GPUs and lists its devices, for `upgrader first-node`. Pure."""

from upgrader.api import names
from upgrader.core.naming import object_name
from upgrader.stack.naming import GPU_POD
from upgrader.stack.node_pods.validation import runtime_fields
from upgrader.stack.parts import PULL_POLICY, TOLERATE_ALL, Manifest
from upgrader.stack.settings import StackSettings

GPU_POD_SECONDS = 180
"""Includes the pull of the node image."""


def gpu_pod(
    node: str, run: str, gpus: tuple[str, int], settings: StackSettings, *, runtime_class: str = ""
) -> Manifest:
    """The pod; its log has a line for each file in its /dev.

    Args:
        node: name of the Node.
        run: name of this run.
        gpus: extended resource, and how many of it.
        settings: settings of the stack.
        runtime_class: RuntimeClass that makes GPUs available; empty means the default runtime.
    """
    resource, count = gpus
    container = {
        "name": GPU_POD,
        "image": settings.node_image,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/bin/ls", "-1", "/dev"],
        "securityContext": {"allowPrivilegeEscalation": False},
        "resources": {"limits": {resource: str(count)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": object_name(f"{GPU_POD}-{count}-{node}", run, str(count)),
            "namespace": settings.namespace,
            "labels": {names.LABEL_COMPONENT: GPU_POD},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": GPU_POD_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": TOLERATE_ALL,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **runtime_fields(runtime_class),
        },
    }
