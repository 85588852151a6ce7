"""Containers that execute an order on a node, from the node image. Pure."""

from typing import Any

import msgspec

from upgrader.core.node_protocol.node_places import HOST_ROOT
from upgrader.core.node_protocol.orders import NODE_VARIABLE, ORDER_VARIABLE
from upgrader.stack.parts import LOGS_ON_ERROR, NODE_PROGRAM, PULL_POLICY, Manifest, volume_mount
from upgrader.stack.settings import StackSettings

HOST_NAMESPACES = {"hostPID": True, "hostNetwork": True}
"""/healthz of the kubelet is on the loopback interface of the node, and the kubelet is found among its processes."""


def node_command(
    name: str,
    order: msgspec.Struct,
    settings: StackSettings,
    *,
    command: str = "",
    **fields: Any,  # noqa: ANN401 - any field of a Container
) -> Manifest:
    """A container with an order in its environment; the `command` of upgrader.node defaults to `name`."""
    return {
        "name": name,
        "image": settings.node_image,
        "imagePullPolicy": PULL_POLICY,
        "command": [*NODE_PROGRAM, command or name],
        "env": [
            {"name": ORDER_VARIABLE, "value": msgspec.json.encode(order).decode()},
            {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        **fields,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        **LOGS_ON_ERROR,
    }


def host_command(name: str, order: msgspec.Struct, settings: StackSettings) -> Manifest:
    """A container with an order that has the files and devices of the node; its pod has a volume `host`."""
    host = volume_mount("host", HOST_ROOT, mountPropagation="HostToContainer")
    return node_command(name, order, settings, securityContext={"privileged": True}, volumeMounts=[host])
