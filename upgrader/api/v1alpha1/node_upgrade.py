"""NodeUpgrade: the upgrade of one node."""

from typing import Annotated

from msgspec import Meta

from upgrader.api.fields import CommandWords, Conditions, Resource, Text, Timestamp, described
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.model.phases import NodePhase, UpgradeReason


class NodeRef(Resource, frozen=True, kw_only=True):
    name: Annotated[Text, described("Name of the Node.")]
    uid: Annotated[Text, described("Uid of the Node: a node of the same name that joined later is another one.")]


class NodeState(Resource, frozen=True, kw_only=True):
    """What a node runs; empty fields mean: none, or not ours."""

    revision: Annotated[str, described("Revision of the stack.")] = ""
    kernel: Annotated[str, described("Kernel that the driver image is for.")] = ""
    driver_vendor: Annotated[str, described("Vendor of the driver.")] = ""
    driver_version: Annotated[str, described("Version of the driver.")] = ""
    driver_image: Annotated[str, described("Driver image by digest.")] = ""
    driver_key: Annotated[str, described("Key of the driver image, as on the node's label.")] = ""
    plugin_image: Annotated[str, described("Device plugin image by digest.")] = ""
    plugin_key: Annotated[str, described("Key of the device plugin, as on the node's label.")] = ""
    time_slices: Annotated[int, described("As how many devices each GPU is offered; 0: it is not shared.")] = 0
    mps_replicas: Annotated[
        int, described("As how many devices each GPU is offered by MPS; 0: it is not shared so.")
    ] = 0
    mps_runtime: Annotated[str, described("RuntimeClass of MPS's control daemon; empty: the default.")] = ""
    mig_strategy: Annotated[str, described("How partitions of a GPU are offered.")] = ""
    runtime_image: Annotated[str, described("Image of the runtime hook by digest; empty where it is not ours.")] = ""
    runtime_key: Annotated[str, described("Key of the runtime hook, as on the node's label.")] = ""
    workload_image: Annotated[
        str, described("Image that works on the GPUs before the node is given back, by digest; empty: none does.")
    ] = ""
    workload_runtime: Annotated[str, described("RuntimeClass of it; empty: the default.")] = ""
    kubelet_version: Annotated[str, described("Kubelet version; empty where it is not managed.")] = ""
    kubelet_artifact: Annotated[str, described("Image with the kubelet, by digest.")] = ""
    kubelet_binary: Annotated[str, described("Path of the kubelet on the node.")] = ""
    kubelet_settings: Annotated[
        dict[str, str], described("Fields of the kubelet's configuration that are ours; the others are the node's own.")
    ] = {}
    resource_name: Annotated[str, described("Extended resource that is expected on the node.")] = ""
    vendor: Annotated[str, described("Vendor of the operands, where it is another than the driver's.")] = ""

    @property
    def shares(self) -> int:
        """As how many devices each GPU is offered; 1 where it is not shared."""
        return max(1, self.time_slices, self.mps_replicas)


class RebootState(Resource, frozen=True, kw_only=True):
    """The reboot of a node upgrade."""

    source: Annotated[Text, described("Kernel that the node ran when the upgrade was ordered; going back leads there.")]
    target: Annotated[Text, described("Kernel that it should run after it.")]
    select: Annotated[CommandWords, described("Program on the node that chooses the kernel of its next boots.")]
    restart: Annotated[CommandWords, described("Program on the node that restarts it.")]


class Force(Resource, frozen=True, kw_only=True):
    step: Annotated[NodePhase, described("Step whose wait is passed over.")]
    by: Annotated[Text, described("Who ordered it.")]
    at: Annotated[Timestamp, described("When it was ordered.")]
    reason: Annotated[str, Meta(description="Why, for whoever reads this later.", min_length=1, max_length=1024)]


class NodeUpgradeSpec(Resource, frozen=True, kw_only=True):
    """The upgrade of one node."""

    stack: Annotated[Text, described("Stack of the node.")]
    plan: Annotated[str | None, described("Plan that ordered the upgrade; none for Install and Repair.")] = None
    group: Annotated[Text, described("Upgrade group: its nodes wait for each other.")]
    node: Annotated[NodeRef, described("Node to upgrade.")]
    reason: Annotated[UpgradeReason, described("Install, Rollout or Repair.")]
    attempt: Annotated[int, described("Counts an Install or Repair that failed and is tried again.")] = 1
    takes_over: Annotated[str | None, described("Uid of a NodeUpgrade that is no more, whose claim it takes.")] = None
    source: Annotated[NodeState, Meta(description="What the node runs before the upgrade.")]
    target: Annotated[NodeState, Meta(description="What it should run after it.")]
    reboot: Annotated[RebootState | None, described("Reboot that belongs to the upgrade.")] = None
    force: Annotated[
        list[Force],
        Meta(
            description="Steps that a person orders to go on (upgrader force); nothing else here ever changes.",
            max_length=20,
        ),
    ] = []


class StepStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[NodePhase, described("Phase of this step.")]
    started_at: Annotated[Timestamp, described("When it was entered.")]
    deadline: Annotated[Timestamp, described("When it is given up.")]
    ended_at: Annotated[Timestamp | None, described("When it was left.")] = None
    result: Annotated[str, described("What came out of it.")] = ""


class Found(Resource, frozen=True, kw_only=True):
    """What was there before our marks, so that nothing else is undone."""

    unschedulable: Annotated[bool, described("A person or tool had cordoned the node.")] = False
    gpus: Annotated[int, described("GPUs that the node offered.")] = 0
    kubelet_version: Annotated[str, described("Kubelet that it ran.")] = ""


class Eviction(Resource, frozen=True, kw_only=True):
    """The latest refusal to evict a pod."""

    message: Annotated[Text, described("Which pod, and why.")]
    not_before: Annotated[Timestamp, described("When it is tried again at the earliest.")]


class NodeUpgradeStatus(Resource, frozen=True, kw_only=True):
    """How far a node upgrade is."""

    phase: Annotated[NodePhase, described("Where the upgrade is.")] = NodePhase.PENDING
    reverting: Annotated[bool, described("Whether source and target are exchanged because the upgrade failed.")] = False
    reason: Annotated[str, described("Why it waits or how it ended, as one word.")] = ""
    message: Annotated[str, described("The same as a sentence.")] = ""
    deadline: Annotated[Timestamp | None, described("When the present phase is given up.")] = None
    steps: Annotated[list[StepStatus], described("Every phase that was entered.")] = []
    found: Annotated[Found, described("What was found before.")] = Found()
    eviction: Annotated[Eviction | None, described("Why pods were not evicted, while that is waited for.")] = None
    conditions: Annotated[Conditions, described("Blocked.")] = []


class NodeUpgrade(Resource, frozen=True, kw_only=True):
    """The upgrade of one node, and how far it is."""

    metadata: ObjectMeta
    spec: NodeUpgradeSpec
    status: NodeUpgradeStatus = NodeUpgradeStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "NodeUpgrade"
