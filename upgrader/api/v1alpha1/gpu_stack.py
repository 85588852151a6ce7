"""GpuStack: what runs on the nodes of one pool."""

from typing import Annotated, Literal

from msgspec import Meta, field

from upgrader.api.fields import (
    CommandWords,
    Conditions,
    ImageReference,
    KernelRelease,
    KubeletVersion,
    LabelKey,
    Resource,
    Text,
    VersionText,
    described,
    keyed_by,
)
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1.guard_rails import GuardRailsSpec
from upgrader.api.v1alpha1.upgrade_plan import CheckpointDefaults, Strategy
from upgrader.core.gpu_stack.proposals import OnDrift
from upgrader.core.model.operands import Operand, Standing


class DriverSpec(Resource, frozen=True, kw_only=True):
    vendor: Annotated[
        Literal["nvidia", "sim"],
        described(
            "Whose operands run on the pool. `sim` simulates devices where there are none, on any recipe's driver."
        ),
    ]
    version: Annotated[VersionText, described("Driver version that every node of the pool should run.")]
    recipe: Annotated[
        Literal["nvidia", "nvidia-open", "sim"] | None,
        described(
            "Recipe whose driver is loaded, a folder in driver-images/. Left out: that of the flavour; without one "
            "`nvidia-open` for nvidia, and any image of the simulated driver for sim."
        ),
    ] = None
    flavour: Annotated[
        Literal["open", "proprietary"] | None, described("Flavour of the kernel modules; each recipe makes one.")
    ] = None
    unverified: Annotated[
        Literal["Refuse", "Allow"],
        described(
            "Driver images that nobody vouches for, as the controller has no key (UPGRADER_IMAGE_KEY). `Refuse`: no "
            "node is given such an image. `Allow`: they are used as they are pinned."
        ),
    ] = "Refuse"


class RuntimeSpec(Resource, frozen=True, kw_only=True):
    """The runtime hook: it describes GPUs to the container runtime as CDI devices, so only pods that ask have them."""

    management: Annotated[
        Literal["Managed", "External"],
        described(
            "`External`: somebody else's hook, or none; we do not touch it. `Managed`: ours, changed in upgrades."
        ),
    ] = "External"
    image: Annotated[ImageReference | None, described("Its image, by tag or digest.")] = None


Slices = Annotated[int, Meta(ge=2, le=64)]


class MpsSpec(Resource, frozen=True, kw_only=True):
    """NVIDIA's Multi-Process Service: containers use a GPU at once, each with an equal part of memory and threads."""

    replicas: Annotated[
        int,
        Meta(
            description="As how many devices each GPU is offered. GPUs before compute capability 7.5 take 16 at most.",
            ge=2,
            le=48,
        ),
    ]
    runtime_class: Annotated[
        Text | None,
        described(
            "RuntimeClass that hands the driver's programs to the control daemon and the device plugin, where the "
            "container runtime's default does not."
        ),
    ] = None


class SharingSpec(Resource, frozen=True, kw_only=True):
    time_slices: Annotated[
        Slices | None,
        described(
            "As how many devices each GPU is offered: so many containers take turns on it, and nothing keeps them "
            "apart. Left out: it is not shared."
        ),
    ] = None
    mps: Annotated[
        MpsSpec | None,
        described("The same by NVIDIA's MPS instead, which keeps them apart in memory and threads (vendor nvidia)."),
    ] = None
    mig_strategy: Annotated[
        Literal["single", "mixed"] | None,
        described("How the device plugin offers partitions of a GPU that has some, handed on to it (vendor nvidia)."),
    ] = None


class DevicePluginSpec(Resource, frozen=True, kw_only=True):
    management: Annotated[
        Literal["Managed", "External"],
        described("`External`: somebody else's device plugin runs there; we never touch it, and go by what it offers."),
    ] = "Managed"
    image: Annotated[ImageReference | None, described("Device plugin image, by tag or digest.")] = None
    resource_name: Annotated[Text, described("Extended resource that the plugin offers.")] = "nvidia.com/gpu"
    sharing: Annotated[SharingSpec, described("How several containers use one GPU.")] = SharingSpec()


class QuietOperandSpec(Resource, frozen=True, kw_only=True):
    """An operand that no job notices; it rolls by itself."""

    management: Annotated[
        Literal["Managed", "External"],
        described("`External`: somebody else runs it, or nobody; we do not touch it. `Managed`: we do."),
    ] = "External"
    image: Annotated[ImageReference | None, described("Its image, by tag or digest; pinned once it is resolved.")] = (
        None
    )
    max_unavailable: Annotated[
        str,
        Meta(
            description="Nodes that may be without it at once while it rolls: a number, or a percentage.",
            pattern=r"^([1-9][0-9]{0,3}|[1-9][0-9]?%|100%)$",
            max_length=4,
        ),
    ] = "10%"


CpuList = Annotated[str, Meta(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$", max_length=253)]


class KubeletSettingsSpec(Resource, frozen=True, kw_only=True):
    """Fields of the kubelet's configuration that place pods on CPUs; each that is left out is as the node has it."""

    cpu_manager_policy: Annotated[
        Literal["none", "static"] | None,
        described("`static`: containers of Guaranteed pods that ask for whole CPUs have them for themselves."),
    ] = None
    reserved_cpus: Annotated[
        CpuList | None,
        described("CPUs that are kept for the system, as `0-3,64-67`: no container has one for itself."),
    ] = None
    topology_manager_policy: Annotated[
        Literal["none", "best-effort", "restricted", "single-numa-node"] | None,
        described("How strictly the GPUs and CPUs of a pod have to be near each other."),
    ] = None
    topology_manager_scope: Annotated[
        Literal["container", "pod"] | None, described("Whether that is asked of each container, or of the pod as one.")
    ] = None

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """What is asked for, by the names that KubeletConfiguration (kubelet.config.k8s.io/v1beta1) has for it."""
        found = (
            ("cpuManagerPolicy", self.cpu_manager_policy),
            ("reservedSystemCPUs", self.reserved_cpus),
            ("topologyManagerPolicy", self.topology_manager_policy),
            ("topologyManagerScope", self.topology_manager_scope),
        )
        return tuple((name, value) for name, value in found if value is not None)


class KubeletSpec(Resource, frozen=True, kw_only=True):
    manage: Annotated[bool, described("Whether the kubelet is swapped in the upgrade. Off unless asked for.")] = False
    version: Annotated[KubeletVersion | None, described("Kubelet version, as 1.35.4.")] = None
    artifact: Annotated[
        ImageReference | None, described("Image that carries the kubelet binary, see docs/node-contract.md.")
    ] = None
    binary: Annotated[
        str, Meta(description="Path of the kubelet on the node.", pattern=r"^/[A-Za-z0-9._/-]+$", max_length=253)
    ] = "/usr/bin/kubelet"
    settings: Annotated[
        KubeletSettingsSpec,
        described(
            "Settings of the kubelet, changed in upgrades that empty the node first; whether or not its version is "
            "managed. See docs/stacks.md for what the node's kubelet needs."
        ),
    ] = KubeletSettingsSpec()


class ValidationSpec(Resource, frozen=True, kw_only=True):
    """What works on the GPUs of a node before it is given back, beside the look at its driver and devices."""

    workload_image: Annotated[
        ImageReference | None,
        described(
            "Image that works on the one GPU that it is given and ends with 0 if that went well, as NVIDIA's CUDA "
            "sample vectorAdd. Left out: GPUs are looked at only. On simulated ones our own program works."
        ),
    ] = None
    runtime_class: Annotated[
        Text | None, described("RuntimeClass that hands GPUs into it, where the container runtime's default does not.")
    ] = None


class RebootSpec(Resource, frozen=True, kw_only=True):
    """Which kernel the nodes run, and how one is rebooted into it: in its upgrade, under the same acknowledgement."""

    kernel: Annotated[
        KernelRelease,
        described("Kernel that every node of the pool should run, as in `uname -r`. It has to be installed there."),
    ]
    select: Annotated[
        CommandWords,
        described(
            "Program on the node, by its whole path, that makes a kernel the one to boot from now on; the kernel's "
            "release is its last word."
        ),
    ]
    restart: Annotated[CommandWords, described("Program on the node, by its whole path, that restarts it.")] = field(
        default_factory=lambda: ["/sbin/reboot"]
    )


class GangRule(Resource, frozen=True, kw_only=True):
    """Pods of one namespace that belong together although nothing else says so."""

    label: Annotated[LabelKey | None, described("Label by whose value pods belong together.")] = None
    regex: Annotated[
        Text | None,
        described(
            "Expression that must match a pod's whole name; pods whose first group is the same belong together, "
            "without a group all that match."
        ),
    ] = None


class DriftLimits(Resource, frozen=True, kw_only=True):
    """What a stack may consent to by itself. It never names a job expendable: a person does, for one plan."""

    max_interruptions: Annotated[int, Meta(description="Most gangs that a plan may stop.", ge=0)]
    max_lost_gpu_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None, described("Most GPU-hours that a plan may lose; any number unless given.")
    ] = None
    placement_unguaranteed: Annotated[
        bool, described("Whether gangs may be restarted although the cluster offers no way to steer them.")
    ] = False


class DriftPlanSpec(Resource, frozen=True, kw_only=True):
    """How plans are made that the stack makes by itself."""

    strategy: Annotated[Strategy, described("Order and pace.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, described("Defaults for jobs that do not say.")] = CheckpointDefaults()
    tolerated_failures: Annotated[
        int, Meta(description="The plan pauses by itself when more nodes or gangs than this have failed.", ge=0)
    ] = 0
    limits: Annotated[
        DriftLimits | None, described("Limits within which the stack approves; without them it approves nothing.")
    ] = None


class GpuStackSpec(Resource, frozen=True, kw_only=True):
    """What runs on the nodes of one pool. How and when it gets there is a plan's."""

    node_selector: Annotated[dict[str, str], Meta(description="Nodes of this pool, by label.", min_length=1)]
    driver: Annotated[DriverSpec, described("Driver of the pool.")]
    device_plugin: Annotated[DevicePluginSpec, described("Device plugin of the pool.")]
    runtime: Annotated[RuntimeSpec, described("Runtime hook of the pool.")] = RuntimeSpec()
    kubelet: Annotated[KubeletSpec, described("Kubelet of the pool.")] = KubeletSpec()
    feature_discovery: Annotated[
        QuietOperandSpec, described("GPU feature discovery: labels for model, memory and driver of the GPUs.")
    ] = QuietOperandSpec()
    monitoring: Annotated[QuietOperandSpec, described("The exporter of GPU metrics.")] = QuietOperandSpec()
    validation: Annotated[ValidationSpec, described("What a node has to do well before it is given back.")] = (
        ValidationSpec()
    )
    reboot: Annotated[
        RebootSpec | None,
        described(
            "Reboots nodes in their upgrades into a kernel that is installed. Left out: no node is ever rebooted."
        ),
    ] = None
    guard_rails: Annotated[
        GuardRailsSpec, described("What keeps the pool for its jobs; printed by `upgrader guard-rails` for a person.")
    ] = GuardRailsSpec()
    node_features: Annotated[
        Literal["Auto", "External"],
        described(
            "Who puts node-feature-discovery's labels on the nodes of the pool. `External`: whoever does, or nobody; "
            "we do not touch them. `Auto`: we do, wherever node-feature-discovery does not run."
        ),
    ] = "External"
    on_drift: Annotated[
        OnDrift,
        described(
            "What is done about nodes that differ from the stack and are in use. `Report`: it is shown. `Propose`: an "
            "UpgradePlan is made that waits for approval. `Approve`: it is approved too, within driftPlan.limits."
        ),
    ] = OnDrift.REPORT
    drift_plan: Annotated[
        DriftPlanSpec | None, described("Plans that onDrift makes: their pace, and the limits of their approval.")
    ] = None
    history_limit: Annotated[
        int,
        Meta(
            description="Ended UpgradePlans of the stack that are kept, with the revisions that they rolled out.",
            ge=1,
            le=1000,
        ),
    ] = 10
    gangs: Annotated[
        list[GangRule],
        Meta(description="Who belongs together, before all that is known by itself; first hit wins.", max_length=16),
    ] = []


class DriftCount(Resource, frozen=True, kw_only=True):
    reason: Annotated[str, described("Why these nodes differ from the stack.")]
    nodes: Annotated[int, described("How many nodes differ for this reason.")]
    names: Annotated[list[str], described("The first ten of them.")] = []


class OperandStatus(Resource, frozen=True, kw_only=True):
    """How it stands with one operand on the nodes of the pool."""

    operand: Annotated[Operand, described("Which one. They come up on each node in this order.")]
    state: Annotated[Standing, described("Ready, Waiting, None (no node should have it yet) or External.")]
    shown: Annotated[str, described("The same for a column: nodes that have it of those that should, or one word.")]
    ready: Annotated[int, described("Nodes where it is ready.")] = 0
    wanted: Annotated[int, described("Nodes that should have it.")] = 0
    blocked: Annotated[int, described("Nodes where one before it is not ready, so that it waits.")] = 0
    message: Annotated[str, described("The first nodes where it is not ready, and why.")] = ""


class PartStatus(Resource, frozen=True, kw_only=True):
    """How it stands with what runs on the nodes of the pool beside its operands: none waits for it."""

    # No field has a default, so that each is always written: a merge patch leaves in place what it does not name.
    state: Annotated[Standing, described("Ready, Waiting, None (there is no node for it) or External.")]
    shown: Annotated[str, described("The same for a column: nodes that have it of those that should, or one word.")]
    ready: Annotated[int, described("Nodes where it is ready.")]
    wanted: Annotated[int, described("Nodes that should have it.")]
    message: Annotated[str, described("The first nodes where it is not ready, and why.")]


class GpuStackStatus(Resource, frozen=True, kw_only=True):
    """How far the pool is from its stack."""

    observed_generation: Annotated[int | None, described("Generation of the spec that this status speaks of.")] = None
    current_revision: Annotated[str | None, described("Revision that all nodes had last.")] = None
    update_revision: Annotated[str | None, described("Revision of the present spec.")] = None
    blocked_revision: Annotated[
        str | None, described("The update revision, where a plan went back from it: correct the spec first.")
    ] = None
    active_plan: Annotated[str | None, described("The one running plan of this stack.")] = None
    nodes: Annotated[int, described("Nodes that the selector finds.")] = 0
    ready: Annotated[int, described("Nodes on the update revision, in service.")] = 0
    drifted: Annotated[int, described("Nodes with at least one reason for drift.")] = 0
    drift: Annotated[list[DriftCount], described("Drift by reason.")] = []
    operands: Annotated[
        list[OperandStatus],
        Meta(description="Every operand, in the order of their coming up.", extra_json_schema=keyed_by("operand")),
    ] = []
    node_features: Annotated[
        PartStatus | None, described("The pods that read what their nodes are, where `nodeFeatures` is Auto.")
    ] = None
    conditions: Annotated[
        Conditions,
        described(
            "Valid, Drifted, Installed, OperandsReady; OnDrift where plans are made; LabelsAgree, Adopted, "
            "NextBootSupported where not all was well; NodeFeatures where we label; Overlaps where two stacks met."
        ),
    ] = []


class GpuStack(Resource, frozen=True, kw_only=True):
    """What: the device stack of one node pool."""

    metadata: ObjectMeta
    spec: GpuStackSpec
    status: GpuStackStatus = GpuStackStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "GpuStack"
