"""NodeUpgrade: the upgrade of one node."""

from typing import Annotated

from msgspec import Meta

from upgrader.api.fields import CommandWords, Conditions, Resource, Text, Timestamp, described
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.model.phases import NodePhase, UpgradeReason


class NodeRef(Resource, frozen=True, kw_only=True):
    name: Annotated[Text, described("Name of the Node.")]
    uid: Annotated[Text, described("UID of the Node. A node with the same name that joins later is a different node.")]


class NodeState(Resource, frozen=True, kw_only=True):
    """Software of a node. An empty field means none, or not managed by the stack."""

    revision: Annotated[str, described("Revision of the stack.")] = ""
    kernel: Annotated[str, described("Kernel release that the driver image is for.")] = ""
    driver_vendor: Annotated[str, described("Vendor of the driver.")] = ""
    driver_version: Annotated[str, described("Version of the driver.")] = ""
    driver_image: Annotated[str, described("Driver image, by digest.")] = ""
    driver_key: Annotated[
        str, described("Key of the driver image: the value of the node label gpu-upgrader.io/driver.")
    ] = ""
    plugin_image: Annotated[str, described("Image of the device plugin, by digest.")] = ""
    plugin_key: Annotated[
        str, described("Key of the device plugin: the value of the node label gpu-upgrader.io/device-plugin.")
    ] = ""
    time_slices: Annotated[
        int, described("Number of devices that are advertised for each GPU by time slicing. 0 means no time slicing.")
    ] = 0
    mps_replicas: Annotated[
        int, described("Number of devices that are advertised for each GPU by MPS. 0 means no MPS.")
    ] = 0
    mps_runtime: Annotated[
        str, described("RuntimeClass of the MPS control daemon. Empty means the default runtime.")
    ] = ""
    mig_strategy: Annotated[str, described("Strategy by which MIG partitions of GPUs are advertised.")] = ""
    runtime_image: Annotated[
        str, described("Image of the runtime hook, by digest. Empty if the stack does not manage the runtime hook.")
    ] = ""
    runtime_key: Annotated[
        str, described("Key of the runtime hook: the value of the node label gpu-upgrader.io/runtime.")
    ] = ""
    workload_image: Annotated[
        str,
        described(
            "Image of the workload that validates the GPUs before the release of the node, by digest. "
            "Empty means no workload."
        ),
    ] = ""
    workload_runtime: Annotated[str, described("RuntimeClass of the workload. Empty means the default runtime.")] = ""
    kubelet_version: Annotated[str, described("Kubelet version. Empty if the stack does not manage the kubelet.")] = ""
    kubelet_artifact: Annotated[str, described("Image that contains the kubelet binary, by digest.")] = ""
    kubelet_binary: Annotated[str, described("Path of the kubelet binary on the node.")] = ""
    kubelet_settings: Annotated[
        dict[str, str], described("Fields of the kubelet configuration that the stack manages.")
    ] = {}
    resource_name: Annotated[str, described("Extended resource that the node is expected to advertise.")] = ""
    vendor: Annotated[str, described("Vendor of the operands, if it differs from the vendor of the driver.")] = ""

    @property
    def shares(self) -> int:
        """Number of devices that are advertised for each GPU; 1 if GPUs are not shared."""
        return max(1, self.time_slices, self.mps_replicas)


class RebootState(Resource, frozen=True, kw_only=True):
    """Reboot that is part of a node upgrade."""

    source: Annotated[
        Text,
        described("Kernel release that the node ran when the upgrade was created. A failed upgrade reverts to it."),
    ]
    target: Annotated[Text, described("Kernel release that the node runs after the reboot.")]
    select: Annotated[CommandWords, described("Command on the node that selects the kernel for all further boots.")]
    restart: Annotated[CommandWords, described("Command on the node that reboots the node.")]


class Force(Resource, frozen=True, kw_only=True):
    step: Annotated[NodePhase, described("Step whose wait is skipped.")]
    by: Annotated[Text, described("Name of the user who forced the step.")]
    at: Annotated[Timestamp, described("Time at which the step was forced.")]
    reason: Annotated[str, Meta(description="Reason, as stated by the user.", min_length=1, max_length=1024)]


class NodeUpgradeSpec(Resource, frozen=True, kw_only=True):
    """The upgrade of one node."""

    stack: Annotated[Text, described("Name of the GpuStack of the node.")]
    plan: Annotated[
        str | None, described("Name of the UpgradePlan that created the upgrade. Unset for Install and Repair.")
    ] = None
    group: Annotated[Text, described("Name of the upgrade group. The nodes of a group wait for each other.")]
    node: Annotated[NodeRef, described("Node to upgrade.")]
    reason: Annotated[UpgradeReason, described("Reason for the upgrade: Install, Rollout or Repair.")]
    attempt: Annotated[
        int, described("Number of the attempt. It increases each time a failed Install or Repair is retried.")
    ] = 1
    takes_over: Annotated[
        str | None, described("UID of a deleted NodeUpgrade whose claim on the node this one takes over.")
    ] = None
    source: Annotated[NodeState, Meta(description="Software of the node before the upgrade.")]
    target: Annotated[NodeState, Meta(description="Software of the node after the upgrade.")]
    reboot: Annotated[RebootState | None, described("Reboot that is part of the upgrade.")] = None
    force: Annotated[
        list[Force],
        Meta(
            description="Steps that a user forces (`upgrader force`). All other fields of the spec are immutable.",
            max_length=20,
        ),
    ] = []


class StepStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[NodePhase, described("Phase that this step is.")]
    started_at: Annotated[Timestamp, described("Time at which the phase started.")]
    deadline: Annotated[Timestamp, described("Time at which the phase times out.")]
    ended_at: Annotated[Timestamp | None, described("Time at which the phase ended.")] = None
    result: Annotated[str, described("Result of the phase.")] = ""


class Found(Resource, frozen=True, kw_only=True):
    """State of the node before the upgrade changed it, so that only the changes of the upgrade are undone."""

    unschedulable: Annotated[bool, described("Whether the node was cordoned before the upgrade.")] = False
    gpus: Annotated[int, described("Number of GPUs that the node advertised.")] = 0
    kubelet_version: Annotated[str, described("Version of the kubelet that the node ran.")] = ""


class Eviction(Resource, frozen=True, kw_only=True):
    """Latest refused eviction of a pod."""

    message: Annotated[Text, described("Name of the pod and reason of the refusal.")]
    not_before: Annotated[Timestamp, described("Earliest time of the next attempt.")]


class NodeUpgradeStatus(Resource, frozen=True, kw_only=True):
    """Observed state of a node upgrade."""

    phase: Annotated[NodePhase, described("Phase of the upgrade.")] = NodePhase.PENDING
    reverting: Annotated[bool, described("Whether source and target are exchanged because the upgrade failed.")] = False
    reason: Annotated[str, described("Machine-readable reason why the upgrade waits, or how it ended.")] = ""
    message: Annotated[str, described("Human-readable message for the reason.")] = ""
    deadline: Annotated[Timestamp | None, described("Time at which the current phase times out.")] = None
    steps: Annotated[list[StepStatus], described("Phases that were started.")] = []
    found: Annotated[Found, described("State of the node before the upgrade.")] = Found()
    eviction: Annotated[Eviction | None, described("Latest refused eviction, while the upgrade waits for it.")] = None
    conditions: Annotated[
        Conditions, described("Conditions of the upgrade. Blocked: whether a blocker delays the upgrade.")
    ] = []


class NodeUpgrade(Resource, frozen=True, kw_only=True):
    """NodeUpgrade is the upgrade of one node, from the pull of its images to the release of the node."""

    metadata: ObjectMeta
    spec: NodeUpgradeSpec
    status: NodeUpgradeStatus = NodeUpgradeStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "NodeUpgrade"
