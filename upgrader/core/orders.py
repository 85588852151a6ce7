"""What the pods on a node are told to do, and what they answer: the wire between reconcile and node.

An order travels as JSON in the environment variable ORDER_VARIABLE; the answer is the container's termination message
(at most 4096 bytes, see Kubernetes' terminationMessagePath) and is judged together with the exit code.
"""

from enum import StrEnum

import msgspec

ORDER_VARIABLE = "UPGRADER_ORDER"
NODE_VARIABLE = "UPGRADER_NODE"
"""Name of the node, by the downward API."""

TERMINATION_LOG = "/dev/termination-log"
HOST_ROOT = "/host"
"""Where a node's file system is mounted in our pods on it."""

STATE_DIRECTORY = "/var/lib/gpu-upgrader"
"""On the node: fetched kubelets, the kubelet before the last swap, results."""

RUN_DIRECTORY = "/run/gpu-upgrader"
"""On the node, on tmpfs: what a reboot forgets, as it forgets loaded modules."""


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """A driver as it is loaded on a node, or should be."""

    vendor: str
    version: str


class KubeletTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A kubelet to put in place.

    `binary` is its path on the node; the fetched file lies under STATE_DIRECTORY/kubelet/<version>/kubelet
    with its `kubelet.sha256` beside it.
    """

    version: str
    binary: str


class PrepareOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Prove that a node can be visited, while its jobs run; load nothing.

    The driver image's init container left its manifest at `manifest` (a path in the pod).
    """

    kernel: str
    driver: Driver
    manifest: str
    kubelet: KubeletTarget | None = None
    min_free_bytes: int = 1 << 30


class VisitOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Unload the driver, switch to the next, swap the kubelet; all steps are idempotent.

    `unload` without a version means whichever driver of this vendor is loaded.
    `visit` is the NodeUpgrade's uid plus its direction, so that a revert is another visit. Time-outs in seconds.
    """

    visit: str
    unload: Driver | None = None
    kubelet: KubeletTarget | None = None
    healthz_timeout: int = 60
    ready_timeout: int = 120


class ValidateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """See from inside a pod with GPUs that driver and plugin work together."""

    driver: Driver
    boot_id: str
    devices: int


class Reason(StrEnum):
    """Why an order ended as it did."""

    DONE = "Done"
    KERNEL_MISMATCH = "KernelMismatch"
    DRIVER_MISMATCH = "DriverMismatch"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    DISK_FULL = "DiskFull"
    MISSING = "Missing"
    BUSY = "DriverBusy"
    KUBELET_RESTORED = "KubeletRestored"
    KUBELET_LOST = "KubeletLost"
    DEVICE_FAILED = "DeviceFailed"
    BAD_ORDER = "BadOrder"


class OrderResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to any order; `message` is a sentence for people, `facts` what was seen (strings for display)."""

    reason: Reason
    message: str
    seconds: float = 0.0
    facts: dict[str, str] = {}
