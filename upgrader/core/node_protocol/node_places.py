"""Paths on a node. They are apart from the orders for programs that only wait or check options: to load the decoder of
orders takes an emulated node a quarter of a second.
"""

HOST_ROOT = "/host"
"""Mount path of a node's file system in node pods."""

STATE_DIRECTORY = "/var/lib/gpu-upgrader"
"""On the node: fetched kubelets, the kubelet before the last change, results."""

RUN_DIRECTORY = "/run/gpu-upgrader"
"""On the node, on tmpfs: state that a reboot removes, like loaded modules."""
