"""What the images of this product carry: modules of both distributions, and packages of the lock file. Pure data.

Tests compare the lists with what the programs import.
"""

from collections.abc import Sequence

NODE_PACKAGES = ("grpcio", "msgspec", "protobuf", "pyyaml", "typing-extensions")
"""The packages of the lock file that upgrader.node needs."""

NODE_PARTS = (
    "__init__.py",
    *(f"core/{name}.py" for name in ("__init__", "errors", "timing", "untrusted")),
    *(f"core/doctor/{name}.py" for name in ("__init__", "advice", "node_survey")),
    "core/node_protocol",
    "node",
    *(f"process/{name}.py" for name in ("__init__", "atomic_file", "finished", "redact", "run")),
)
"""The parts of this package that upgrader.node loads. The list is minimal, since every node stores the image."""

CONTROLLER_PARTS = (
    *("__init__.py", "__main__.py", "api", "checkpoint"),
    *(f"cli/{name}" for name in ("__init__.py", "main.py", "admin", "base", "control", "doctor", "plan", "shared")),
    *("cli/status", "controller", "core"),
    *(f"images/{name}" for name in ("__init__.py", "labels.py", "layout.py", "registry", "trust", "wire.py")),
    *("kube", "process", "reconcile", "stack", "telemetry", "wiring"),
)
"""The parts of this package that the controller and the commands for a cluster load."""

CONTROLLER_LACKS = ("grpcio", "pyelftools")
"""The packages of the lock file that they do not need: those of the node image and of builds."""

SIMULATED_VENDOR = {
    "upgrader_dev/__init__.py": "dev/upgrader_dev/__init__.py",
    "upgrader_dev/vendor": "dev/upgrader_dev/vendor",
    "gpu_upgrader_dev.dist-info": "Containerfiles/upgrader/simulated-vendor",
}
"""The parts of the other distribution that make the vendor `sim` available to the controller, and metadata with
its entry point.
"""

SIMULATED_GPUS = {
    "upgrader_dev/__init__.py": "dev/upgrader_dev/__init__.py",
    "upgrader_dev/node": "dev/upgrader_dev/node",
}
"""The parts of the other distribution that the operands of the vendor `sim` load, in addition to the node image."""

SIMULATED_GPU_PACKAGES = ("prometheus-client",)
"""The packages of the lock file that they need in addition."""


def product_parts(parts: Sequence[str]) -> dict[str, str]:
    """Parts of this package as sources of an image."""
    return {f"upgrader/{part}": f"upgrader/{part}" for part in parts}
