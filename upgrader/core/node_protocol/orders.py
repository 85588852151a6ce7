"""Orders to node pods, and their results: the messages between reconcile and node.

An order is JSON in the environment variable ORDER_VARIABLE; the result is the container's termination message (at most
4096 bytes, see Kubernetes' terminationMessagePath) and is judged together with the exit code.
"""

from enum import StrEnum

import msgspec

ORDER_VARIABLE = "UPGRADER_ORDER"
NODE_VARIABLE = "UPGRADER_NODE"
"""Name of the node, by the downward API."""
POD_VARIABLE = "UPGRADER_POD"
"""Uid of the pod, by the downward API."""

FORMER_BOOT = "boot id before"
"""Name of the fact with the boot that a node upgrade has ended by a reboot."""

TERMINATION_LOG = "/dev/termination-log"


class NodeDriver(msgspec.Struct, frozen=True, kw_only=True):
    """A driver that is, or is to be, loaded on a node."""

    vendor: str
    version: str


class KubeletTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A kubelet to install.

    `binary` is its path on the node; the fetched file is STATE_DIRECTORY/kubelet/<version>/kubelet, with its
    `kubelet.sha256` beside it.
    """

    version: str
    binary: str


class KubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a kubelet beside its own configuration: fields of KubeletConfiguration by their names there.

    The operator's drop-in file contains only these; without any, it is removed. `binary` is the kubelet's path on the
    node.
    """

    binary: str
    values: dict[str, str] = {}


class ModuleParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters with which the modules of a vendor's driver are loaded, by `module.parameter`."""

    vendor: str
    values: dict[str, str]


class Reboot(msgspec.Struct, frozen=True, kw_only=True):
    """A reboot of the machine into a kernel that is installed on it.

    `select` runs on the node with the kernel's release as its last word and selects that kernel for later boots;
    `restart` ends this boot in order. Time-outs in seconds. `only_after_failed_unload`: the node runs the kernel
    already, and is rebooted only if its driver cannot be unloaded. Until `settle_timeout` after the boot the node may
    have less than before it (see node_fingerprint); then that is a failure, or with `report_losses` a remark.
    """

    kernel: str
    select: tuple[str, ...]
    restart: tuple[str, ...]
    down_timeout: int = 300
    settle_timeout: int = 300
    report_losses: bool = False
    only_after_failed_unload: bool = False


class SurveyScope(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade changes on a node, as far as findings of the survey depend on it. The order of a survey.

    `kernel` is that of the driver after the upgrade; empty means the running one. `swaps_driver`: the loaded driver is
    unloaded. `signed`: a signature of the driver image's modules was checked when it was built; None means that this is
    unknown. `signer_key_id` is that of their certificate in a keyring of the kernel; empty means that it is unknown.
    `services`: those of the driver image; None means that they are unknown. `resources` are the extended resources of
    the pool's GPUs: pods that request them are ended by the upgrade. `namespace` is the operator's, whose pods end
    before the driver is unloaded. `ends_pods`: all other pods except those of DaemonSets and static pods are ended too.
    `reboots`: the node is rebooted, at least if its driver cannot be unloaded. `adopted`: a user handed the node over
    from another operator. `managed_runtime`: the stack deploys the container toolkit. `binary` is the path of the
    kubelet on the node; empty means any kubelet. `stop_units`: systemd units that the upgrade stops and starts.
    """

    vendor: str
    kernel: str = ""
    swaps_driver: bool = True
    signed: bool | None = None
    signer_key_id: str = ""
    services: tuple[str, ...] | None = None
    kubelet: KubeletTarget | None = None
    restarts_kubelet: bool = False
    binary: str = ""
    resources: tuple[str, ...] = ()
    namespace: str = ""
    ends_pods: bool = False
    reboots: bool = False
    adopted: bool = False
    managed_runtime: bool = False
    stop_units: tuple[str, ...] = ()


class PrepareOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Prove that a node can be upgraded, while its jobs run; load nothing.

    `kernel` is that of the driver: the running kernel, or that of `reboot`. The driver image's init container has
    written its manifest to `manifest` (a path in the pod). `parameters` must exist in its modules. With `survey`,
    the node itself is examined as well.
    """

    kernel: str
    driver: NodeDriver
    manifest: str
    kubelet: KubeletTarget | None = None
    settings: KubeletSettings | None = None
    reboot: Reboot | None = None
    parameters: dict[str, str] = {}
    survey: SurveyScope | None = None
    min_free_bytes: int = 1 << 30


class UpgradeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Unload the driver, replace and configure the kubelet, reboot; all steps are idempotent.

    `unload` without a version means any loaded driver of this vendor.
    `upgrade` is the NodeUpgrade's uid plus its direction, so that a revert is another upgrade. Time-outs are in
    seconds. Processes that hold a device are waited for, in the first run for `first_busy_timeout`, so that they are
    reported soon, and in each later run for `busy_timeout`, because each run is a pod. The removal of the driver's
    modules, which the kernel does not cancel, is waited for `unload_timeout`. Before a reboot, which ends the driver
    too, each of both is waited for `reboot_patience`, and a driver that is still loaded then is no failure.
    `undoes` is the upgrade that this one reverts: the kernel that it selected for later boots is selected again.
    `forget` are files on the node from operands that are off now, which would still report them as ready. `adopted`: a
    user handed the node over, so that a driver that another program has loaded is unloaded too. `parameters` are
    written for the driver that is loaded next. `stop_units` are systemd units of the node that use the driver: they
    are stopped before it is unloaded, and start again when a driver is loaded.
    """

    upgrade: str
    undoes: str = ""
    unload: NodeDriver | None = None
    kubelet: KubeletTarget | None = None
    settings: KubeletSettings | None = None
    reboot: Reboot | None = None
    parameters: ModuleParameters | None = None
    forget: tuple[str, ...] = ()
    stop_units: tuple[str, ...] = ()
    adopted: bool = False
    first_busy_timeout: int = 10
    busy_timeout: int = 60
    unload_timeout: int = 600
    reboot_patience: int = 60
    healthz_timeout: int = 60
    ready_timeout: int = 120


class ValidateDriverOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Check on the node that every device of the driver works, and that the kubelet offers it.

    `driver` without a version means any loaded driver of this vendor; an empty `boot_id` is not compared. `expected` is
    the least number of `resource` that the kubelet must offer; 0 means: as many as the driver has devices. `besides`:
    other work that was done, which the result states if there is no error. `parameters` of modules must be in force.
    """

    driver: NodeDriver
    resource: str
    boot_id: str = ""
    expected: int = 0
    besides: str = ""
    parameters: dict[str, str] = {}


class ValidateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Check from inside a pod with GPUs that driver and plugin work together; `devices` counts a shared GPU once."""

    driver: NodeDriver
    boot_id: str
    devices: int


class RestoreOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Set the power limits of GPUs again that an upgrade kept on the node. It has no parameters."""


class AllReduceCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How the result of an all-reduce over `gpus` GPUs is judged.

    `program` identifies image and command: only results of the same program are compared. `min_bus_bandwidth` is in
    GB/s; None means any. `tolerance_percent` applies to the highest result of the node so far.
    """

    program: str
    gpus: int
    min_bus_bandwidth: float | None = None
    tolerance_percent: int


class ProgramsOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Judge the results of the programs that have run in this validation pod; a program that did not run is None or
    False.
    """

    all_reduce: AllReduceCheck | None = None
    diagnostics: bool = False


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
    UNSUITABLE = "NodeUnsuitable"
    DEGRADED = "NodeDegraded"


class OrderResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of any order; `message` is a sentence for users, `facts` are observations (strings for display)."""

    reason: Reason
    message: str
    seconds: float = 0.0
    facts: dict[str, str] = {}
