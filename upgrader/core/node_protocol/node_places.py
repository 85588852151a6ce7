"""Paths on a node. They are apart from the orders for programs that only wait or check options: to load the decoder of
orders takes an emulated node a quarter of a second.
"""

HOST_ROOT = "/host"
"""Mount path of a node's file system in node pods."""

STATE_DIRECTORY = "/var/lib/gpu-upgrader"
"""On the node: fetched kubelets, the kubelet before the last change, results."""

RUN_DIRECTORY = "/run/gpu-upgrader"
"""On the node, on tmpfs: state that a reboot removes, like loaded modules."""

VALIDATION_FOLDER = f"{STATE_DIRECTORY}/validation"
"""On the node: results of the programs of the validation, with which later ones are compared."""

PROGRAM_RESULTS = "/results"
"""In validation pods: for each program its output (NAME.out, NAME.err) and its exit code (NAME.code)."""

ALL_REDUCE, DIAGNOSTICS = "all-reduce", "diagnostics"
"""Names of these programs."""
