"""What the pods on a node are told to do, and what they answer: the wire between reconcile and node.

An order travels as JSON in the environment variable ORDER_VARIABLE; the answer is the container's termination message
(at most 4096 bytes, see Kubernetes' terminationMessagePath) and is judged together with the exit code.
"""

from enum import StrEnum

import msgspec

ORDER_VARIABLE = "UPGRADER_ORDER"
NODE_VARIABLE = "UPGRADER_NODE"
"""Name of the node, by the downward API."""
POD_VARIABLE = "UPGRADER_POD"
"""Uid of the pod, by the downward API."""

TERMINATION_LOG = "/dev/termination-log"


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


class KubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet is told beside its own configuration: fields of KubeletConfiguration by their names there.

    They are all that our drop-in file holds; without any, it goes. `binary` is the kubelet's path on the node.
    """

    binary: str
    values: dict[str, str] = {}


class Reboot(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of the machine into a kernel that is installed on it.

    `select` runs on the node with the kernel's release as its last word and makes that kernel the one to boot from then
    on; `restart` ends this boot in order. Time-out in seconds.
    """

    kernel: str
    select: tuple[str, ...]
    restart: tuple[str, ...]
    down_timeout: int = 300


class PrepareOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Prove that a node can be upgraded, while its jobs run; load nothing.

    `kernel` is the one that the driver is for: that which runs, or that which `reboot` leads to. The driver image's
    init container left its manifest at `manifest` (a path in the pod).
    """

    kernel: str
    driver: Driver
    manifest: str
    kubelet: KubeletTarget | None = None
    settings: KubeletSettings | None = None
    reboot: Reboot | None = None
    min_free_bytes: int = 1 << 30


class UpgradeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Unload the driver, swap and set the kubelet, reboot; all steps are idempotent.

    `unload` without a version means whichever driver of this vendor is loaded.
    `upgrade` is the NodeUpgrade's uid plus its direction, so that a revert is another upgrade. Time-outs are in
    seconds. Processes that hold a device are waited for, by the first run `first_busy_timeout` long, so that people
    soon know who they are, and by each later one `busy_timeout` long, because each run is a pod. `undoes` is the
    upgrade whose way back this is: what that one chose to be booted is chosen anew. `forget` are files of the node that
    operands left which are off now: they say of nobody any more that he is ready.
    """

    upgrade: str
    undoes: str = ""
    unload: Driver | None = None
    kubelet: KubeletTarget | None = None
    settings: KubeletSettings | None = None
    reboot: Reboot | None = None
    forget: tuple[str, ...] = ()
    first_busy_timeout: int = 10
    busy_timeout: int = 60
    healthz_timeout: int = 60
    ready_timeout: int = 120


class ValidateDriverOrder(msgspec.Struct, frozen=True, kw_only=True):
    """See on the node that every device of the driver works, and that the kubelet offers it.

    `driver` without a version means whichever of this vendor is loaded; an empty `boot_id` is not compared. `expected`
    is how many of `resource` the kubelet must offer at least; 0 means: as many as the driver has devices. `besides`:
    what else was done, for the answer to say where all is well.
    """

    driver: Driver
    resource: str
    boot_id: str = ""
    expected: int = 0
    besides: str = ""


class ValidateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """See from inside a pod with GPUs that driver and plugin work together; `devices` counts a shared one once."""

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
    NOT_REBOOTED = "NotRebooted"
    BAD_ORDER = "BadOrder"
    OCCUPIED = "NodeOccupied"


class OrderResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to any order; `message` is a sentence for people, `facts` what was seen (strings for display)."""

    reason: Reason
    message: str
    seconds: float = 0.0
    facts: dict[str, str] = {}
