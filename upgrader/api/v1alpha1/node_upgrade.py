"""NodeUpgrade: the upgrade of one node."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.kubernetes import Conditions, ObjectMeta
from upgrader.core.fields import CommandWords, Resource, Text, Timestamp, UnitNames, field_doc
from upgrader.core.model.phases import NodePhase, UpgradeReason
from upgrader.core.model.upgrade_limits import UpgradeLimits
from upgrader.core.model.validation import AllReduce, Diagnostics, ValidationLevel


class NodeRef(Resource, frozen=True, kw_only=True):
    name: Annotated[Text, field_doc("Name of the Node.")]
    uid: Annotated[Text, field_doc("UID of the Node. A node with the same name that joins later is a different node.")]


class NodeState(Resource, frozen=True, kw_only=True):
    """Software of a node. An empty field means none, or not managed by the stack."""

    revision: Annotated[str, field_doc("Revision of the stack.")] = ""
    kernel: Annotated[str, field_doc("Kernel release that the driver image is for.")] = ""
    driver_vendor: Annotated[str, field_doc("Vendor of the driver.")] = ""
    driver_version: Annotated[str, field_doc("Version of the driver.")] = ""
    driver_image: Annotated[str, field_doc("Driver image, by digest.")] = ""
    driver_key: Annotated[
        str, field_doc("Key of the driver image: the value of the node label gpu-upgrader.io/driver.")
    ] = ""
    plugin_image: Annotated[str, field_doc("Image of the device plugin, by digest.")] = ""
    plugin_key: Annotated[
        str, field_doc("Key of the device plugin: the value of the node label gpu-upgrader.io/device-plugin.")
    ] = ""
    time_slices: Annotated[
        int, field_doc("Number of devices that are advertised for each GPU by time slicing. 0 means no time slicing.")
    ] = 0
    mps_replicas: Annotated[
        int, field_doc("Number of devices that are advertised for each GPU by MPS. 0 means no MPS.")
    ] = 0
    mps_runtime: Annotated[
        str, field_doc("RuntimeClass of the MPS control daemon. Empty means the default runtime.")
    ] = ""
    mig_strategy: Annotated[str, field_doc("Strategy by which MIG partitions of GPUs are advertised.")] = ""
    runtime_image: Annotated[
        str, field_doc("Image of the runtime hook, by digest. Empty if the stack does not manage the runtime hook.")
    ] = ""
    runtime_key: Annotated[
        str, field_doc("Key of the runtime hook: the value of the node label gpu-upgrader.io/runtime.")
    ] = ""
    workload_image: Annotated[
        str,
        field_doc(
            "Image of the workload that validates the GPUs before the release of the node, by digest. "
            "Empty means no workload."
        ),
    ] = ""
    workload_runtime: Annotated[
        str, field_doc("RuntimeClass of the programs of the validation. Empty means the default runtime.")
    ] = ""
    all_reduce: Annotated[
        AllReduce | None, field_doc("Program of the validation level AllReduce, with its image by digest.")
    ] = None
    diagnostics: Annotated[
        Diagnostics | None, field_doc("Program of the validation level Diagnostics, with its image by digest.")
    ] = None
    kubelet_version: Annotated[str, field_doc("Kubelet version. Empty if the stack does not manage the kubelet.")] = ""
    kubelet_artifact: Annotated[str, field_doc("Image that contains the kubelet binary, by digest.")] = ""
    kubelet_binary: Annotated[str, field_doc("Path of the kubelet binary on the node.")] = ""
    kubelet_settings: Annotated[
        dict[str, str], field_doc("Fields of the kubelet configuration that the stack manages.")
    ] = {}
    module_parameters: Annotated[
        dict[str, str], field_doc("Parameters of the driver's kernel modules, by module.parameter.")
    ] = {}
    resource_name: Annotated[str, field_doc("Extended resource that the node is expected to advertise.")] = ""
    vendor: Annotated[str, field_doc("Vendor of the operands, if it differs from the vendor of the driver.")] = ""

    @property
    def shares(self) -> int:
        """Number of devices that are advertised for each GPU; 1 if GPUs are not shared."""
        return max(1, self.time_slices, self.mps_replicas)


class RebootState(Resource, frozen=True, kw_only=True):
    """Reboot that is part of a node upgrade."""

    source: Annotated[
        Text,
        field_doc("Kernel release that the node ran when the upgrade was created. A failed upgrade reverts to it."),
    ]
    target: Annotated[Text, field_doc("Kernel release that the node runs after the reboot.")]
    select: Annotated[CommandWords, field_doc("Command on the node that selects the kernel for all further boots.")]
    restart: Annotated[CommandWords, field_doc("Command on the node that reboots the node.")]
    when: Annotated[
        Literal["Always", "UnloadFailed"],
        field_doc(
            "Whether the node is rebooted in any case, or only if its driver cannot be unloaded. In the second case "
            "the kernel stays the same. Defaults to `Always`."
        ),
    ] = "Always"
    on_loss: Annotated[
        Literal["Fail", "Report"],
        field_doc("What happens if the node has less after the reboot than before. Defaults to `Fail`."),
    ] = "Fail"
    settle_seconds: Annotated[
        int,
        field_doc(
            "Time in seconds that the node has after the reboot until it must have what it had before. Defaults to 300."
        ),
    ] = 300

    @property
    def is_certain(self) -> bool:
        """Whether the node is rebooted in any case."""
        return self.when == "Always"


class Force(Resource, frozen=True, kw_only=True):
    step: Annotated[NodePhase, field_doc("Step whose wait is skipped: Draining, Releasing or Failed.")]
    by: Annotated[Text, field_doc("Name of the user who forced the step.")]
    at: Annotated[Timestamp, field_doc("Time at which the step was forced.")]
    reason: Annotated[str, Meta(description="Reason that the user states.", min_length=1, max_length=1024)]


class NodeUpgradeSpec(Resource, frozen=True, kw_only=True):
    """Node to upgrade, and its software before and after the upgrade."""

    stack: Annotated[Text, field_doc("Name of the GpuStack of the node.")]
    plan: Annotated[
        str | None,
        field_doc("Name of the UpgradePlan that created the upgrade. Unset if `reason` is Install or Repair."),
    ] = None
    group: Annotated[Text, field_doc("Name of the upgrade group. The nodes of a group wait for each other.")]
    node: Annotated[NodeRef, field_doc("Node to upgrade.")]
    reason: Annotated[UpgradeReason, field_doc("Reason for the upgrade: Install, Rollout or Repair.")]
    attempt: Annotated[
        int,
        field_doc(
            "Number of the attempt, starting at 1. It increases each time a failed Install or Repair is retried."
        ),
    ] = 1
    takes_over: Annotated[
        str | None,
        field_doc("UID of a deleted NodeUpgrade whose claim on the node is transferred to this NodeUpgrade."),
    ] = None
    source: Annotated[NodeState, Meta(description="Software of the node before the upgrade.")]
    target: Annotated[NodeState, Meta(description="Software of the node after the upgrade.")]
    reboot: Annotated[
        RebootState | None, field_doc("Reboot that is part of the upgrade. If unset, the node is not rebooted.")
    ] = None
    stop_units: Annotated[
        UnitNames,
        field_doc(
            "systemd units of the node that are stopped before its driver is unloaded, from the stack at the creation "
            "of the upgrade. They start again when a driver is loaded."
        ),
    ] = []
    limits: Annotated[
        UpgradeLimits,
        field_doc("Maximum durations of the phases, from the stack at the creation of the upgrade."),
    ] = UpgradeLimits()
    validation: Annotated[
        ValidationLevel,
        field_doc("Level of the validation of the node before its release. Defaults to Devices."),
    ] = ValidationLevel.DEVICES
    force: Annotated[
        list[Force],
        Meta(
            description="Steps that a user has forced (`upgrader force`). Entries can be added, but not changed or "
            "removed. All other fields of the spec are immutable.",
            max_length=20,
        ),
    ] = []

    @property
    def kernel_reboot(self) -> RebootState | None:
        """The reboot into another kernel; None if the kernel stays the same, with or without a reboot."""
        return self.reboot if self.reboot is not None and self.reboot.is_certain else None


class StepStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[NodePhase, field_doc("Phase of the upgrade.")]
    started_at: Annotated[Timestamp, field_doc("Time at which the phase started.")]
    deadline: Annotated[Timestamp, field_doc("Time at which the phase times out.")]
    ended_at: Annotated[Timestamp | None, field_doc("Time at which the phase ended.")] = None
    result: Annotated[str, field_doc("Result of the phase. Empty until the phase has ended.")] = ""


class PreviousNodeState(Resource, frozen=True, kw_only=True):
    """State of the node before the upgrade changed it, so that only the changes of the upgrade are undone."""

    unschedulable: Annotated[bool, field_doc("Whether the node was cordoned before the upgrade.")] = False
    gpus: Annotated[int, field_doc("Number of GPUs that the node advertised before the upgrade.")] = 0
    kubelet_version: Annotated[str, field_doc("Version of the kubelet that the node ran.")] = ""
    allocatable: Annotated[
        dict[str, str],
        field_doc(
            "Allocatable resources of the node, except GPUs of the stack, if the upgrade reboots it into another "
            "kernel. At most 64."
        ),
    ] = {}


class Eviction(Resource, frozen=True, kw_only=True):
    """Latest refused eviction of a pod."""

    message: Annotated[Text, field_doc("Name of the pod and reason of the refusal.")]
    not_before: Annotated[Timestamp, field_doc("Earliest time of the next attempt.")]


class NodeUpgradeStatus(Resource, frozen=True, kw_only=True):
    """Observed state of a node upgrade."""

    phase: Annotated[NodePhase, field_doc("Phase of the upgrade.")] = NodePhase.PENDING
    reverting: Annotated[bool, field_doc("Whether the upgrade has failed and returns the node to `source`.")] = False
    reason: Annotated[str, field_doc("Machine-readable reason why the upgrade waits, or how it ended.")] = ""
    message: Annotated[str, field_doc("Human-readable message for the reason.")] = ""
    deadline: Annotated[Timestamp | None, field_doc("Time at which the current phase times out.")] = None
    steps: Annotated[list[StepStatus], field_doc("Phases that have started, in order.")] = []
    found: Annotated[PreviousNodeState, field_doc("State of the node before the upgrade.")] = PreviousNodeState()
    eviction: Annotated[Eviction | None, field_doc("Latest refused eviction, while the upgrade waits for it.")] = None
    conditions: Annotated[
        Conditions,
        field_doc("Conditions of the upgrade. Blocked: whether a blocker delays the upgrade."),
    ] = []


class NodeUpgrade(Resource, frozen=True, kw_only=True):
    """NodeUpgrade is the upgrade of one node, from the pull of its images to the release of the node."""

    metadata: ObjectMeta
    spec: NodeUpgradeSpec
    status: NodeUpgradeStatus = NodeUpgradeStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "NodeUpgrade"
