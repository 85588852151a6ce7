"""Where on a node our things are. Apart from the orders, since what only waits or checks options need not know those:
to load their decoder takes an emulated node a quarter of a second.
"""

HOST_ROOT = "/host"
"""Where a node's file system is mounted in our pods on it."""

STATE_DIRECTORY = "/var/lib/gpu-upgrader"
"""On the node: fetched kubelets, the kubelet before the last swap, results."""

RUN_DIRECTORY = "/run/gpu-upgrader"
"""On the node, on tmpfs: what a reboot forgets, as it forgets loaded modules."""
