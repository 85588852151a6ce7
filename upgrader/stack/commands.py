"""Containers that carry out an order on a node, by the upgrader's own image. Pure."""

from typing import Any

import msgspec

from upgrader.core.node_protocol.orders import NODE_VARIABLE, ORDER_VARIABLE
from upgrader.stack.parts import NODE_PROGRAM, PULL, Manifest
from upgrader.stack.settings import StackSettings

LOGS_ON_ERROR = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def node_command(
    name: str,
    order: msgspec.Struct,
    settings: StackSettings,
    *,
    command: str = "",
    **fields: Any,  # noqa: ANN401 - any field of a Container
) -> Manifest:
    """A container with an order in its environment; `command` of upgrader.node where it is not called like it."""
    return {
        "name": name,
        "image": settings.node_image,
        "imagePullPolicy": PULL,
        "command": [*NODE_PROGRAM, command or name],
        "env": [
            {"name": ORDER_VARIABLE, "value": msgspec.json.encode(order).decode()},
            {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        **fields,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        **LOGS_ON_ERROR,
    }
