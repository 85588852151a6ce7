"""Our kinds as msgspec types: `make generate` turns them into crds/, the same types decode what the API server sends.

Every field has a description, since `kubectl explain` is where people read first. No field ships before it works.
"""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.fields import (
    Conditions,
    ImageReference,
    KubeletVersion,
    Resource,
    Seconds,
    Text,
    Timestamp,
    VersionText,
    described,
    keyed_by,
)
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.phases import DriverImagePhase, NodePhase, PlanPhase, RequestPhase, Run, VisitReason

# ---------------------------------------------------------------------------------------------------- GpuStack


class DriverSpec(Resource, frozen=True, kw_only=True):
    vendor: Annotated[
        Literal["sim"], described("Whose driver. Only `sim` (no kernel module, simulated devices) works today.")
    ]
    version: Annotated[VersionText, described("Driver version that every node of the pool should run.")]


class DevicePluginSpec(Resource, frozen=True, kw_only=True):
    image: Annotated[ImageReference, described("Device plugin image, by tag or digest.")]
    resource_name: Annotated[Text, described("Extended resource that the plugin offers.")] = "nvidia.com/gpu"


class KubeletSpec(Resource, frozen=True, kw_only=True):
    manage: Annotated[bool, described("Whether the kubelet is swapped in the visit. Off unless asked for.")] = False
    version: Annotated[KubeletVersion | None, described("Kubelet version, as 1.35.4.")] = None
    artifact: Annotated[
        ImageReference | None, described("Image that carries the kubelet binary, see docs/node-contract.md.")
    ] = None
    binary: Annotated[
        str, Meta(description="Path of the kubelet on the node.", pattern=r"^/[A-Za-z0-9._/-]+$", max_length=253)
    ] = "/usr/bin/kubelet"


class GpuStackSpec(Resource, frozen=True, kw_only=True):
    """What runs on the nodes of one pool. How and when it gets there is a plan's."""

    node_selector: Annotated[dict[str, str], Meta(description="Nodes of this pool, by label.", min_length=1)]
    driver: Annotated[DriverSpec, described("Driver of the pool.")]
    device_plugin: Annotated[DevicePluginSpec, described("Device plugin of the pool.")]
    kubelet: Annotated[KubeletSpec, described("Kubelet of the pool.")] = KubeletSpec()


class DriftCount(Resource, frozen=True, kw_only=True):
    reason: Annotated[str, described("Why these nodes differ from the stack.")]
    nodes: Annotated[int, described("How many nodes differ for this reason.")]
    names: Annotated[list[str], described("The first ten of them.")] = []


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
    conditions: Annotated[Conditions, described("Valid, Drifted, Installed.")] = []


class GpuStack(Resource, frozen=True, kw_only=True):
    """What: the device stack of one node pool."""

    metadata: ObjectMeta
    spec: GpuStackSpec
    status: GpuStackStatus = GpuStackStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "GpuStack"


# ------------------------------------------------------------------------------------------------- UpgradePlan


class Strategy(Resource, frozen=True, kw_only=True):
    max_unavailable: Annotated[
        int | str,
        Meta(
            description="Most GPUs out of service at once, counted in GPUs of whole gangs: "
            "a number or a percentage, rounded down.",
            extra_json_schema={"x-kubernetes-int-or-string": True},
        ),
    ] = "25%"


class CheckpointDefaults(Resource, frozen=True, kw_only=True):
    timeout_seconds: Annotated[Seconds, described("Longest one checkpoint may take where the job does not say.")] = 1800
    retry_seconds: Annotated[Seconds, described("How long a gang that refused or did not answer is left alone.")] = 600


class Envelope(Resource, frozen=True, kw_only=True):
    """What was consented to: a forecast may change inside it, leaving it holds and asks again."""

    max_interruptions: Annotated[int, Meta(description="Most gangs that may be stopped.", ge=0)]
    placement_unguaranteed: Annotated[
        bool, described("Whether gangs may be restarted although the cluster offers no way to steer them.")
    ] = False


class Approval(Resource, frozen=True, kw_only=True):
    by: Annotated[Text, described("Who approved.")]
    at: Annotated[Timestamp, described("When it was approved.")]
    envelope: Annotated[Envelope, described("What was approved, in clear.")]


class UpgradePlanSpec(Resource, frozen=True, kw_only=True):
    """How and when a stack's revision gets to its nodes."""

    stack: Annotated[Text, described("GpuStack that this plan rolls out.")]
    target_revision: Annotated[Text, described("Revision of the stack, kept as a ControllerRevision.")]
    strategy: Annotated[Strategy, described("Order and pace.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, described("Defaults for jobs that do not say.")] = CheckpointDefaults()
    approval: Annotated[Approval | None, described("Consent. Nothing is touched without it.")] = None
    run: Annotated[Run, described("Go, Pause (the started batch ends), Abort, AbortAndUndo.")] = Run.GO
    tolerated_failures: Annotated[
        int, Meta(description="The plan pauses by itself when more nodes or gangs than this have failed.", ge=0)
    ] = 0


class Hold(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, described("Node, gang or closure that waits.")]
    reason: Annotated[str, described("Why, as one word.")]
    message: Annotated[str, described("Why and what to do about it, as a sentence.")]


class ClosureStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[str, described("Name of the closure.")]
    nodes: Annotated[list[str], described("Nodes taken together.")]
    gangs: Annotated[list[str], described("Gangs asked and stopped together.")] = []
    gpus: Annotated[int, described("GPUs out of service while it is visited, whole gangs counted.")] = 0


class BatchStatus(Resource, frozen=True, kw_only=True):
    number: Annotated[int, described("Counted from 1.")]
    closures: Annotated[list[ClosureStatus], described("What is visited in this batch.")]
    started_at: Annotated[Timestamp, described("When the batch started.")]
    ask_until: Annotated[Timestamp, described("When asking ends: closures without all acknowledgements are let go.")]
    ended_at: Annotated[Timestamp | None, described("When all its nodes had ended and its gangs were restored.")] = None


class ForecastSummary(Resource, frozen=True, kw_only=True):
    batches: Annotated[int, described("Batches still to start.")] = 0
    nodes: Annotated[int, described("Nodes still to visit.")] = 0
    interruptions: Annotated[int, described("Gangs still to be stopped.")] = 0
    held: Annotated[int, described("Nodes held.")] = 0


class PlanCounts(Resource, frozen=True, kw_only=True):
    nodes: Annotated[int, described("Nodes that this plan should visit.")] = 0
    succeeded: Annotated[int, described("Nodes given back on the target revision.")] = 0
    failed: Annotated[int, described("Nodes whose visit failed.")] = 0
    interruptions: Annotated[int, described("Gangs stopped by this plan.")] = 0
    restored: Annotated[int, described("Gangs seen past their acknowledged step.")] = 0


class Failure(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, described("Node or gang.")]
    reason: Annotated[str, described("Why, as one word.")]
    message: Annotated[str, described("What happened and what to do.")]


class UpgradePlanStatus(Resource, frozen=True, kw_only=True):
    """How far a rollout is, and what holds it."""

    observed_generation: Annotated[int | None, described("Generation of the spec that this status speaks of.")] = None
    phase: Annotated[PlanPhase, described("Where the plan is.")] = PlanPhase.PROPOSED
    message: Annotated[str, described("Where the plan is, as a sentence.")] = ""
    stack_revision: Annotated[str | None, described("Update revision of the stack when the plan started.")] = None
    revisions_left: Annotated[list[str], described("Revisions that gangs are steered away from.")] = []
    started_at: Annotated[Timestamp | None, described("When it started.")] = None
    ended_at: Annotated[Timestamp | None, described("When it ended.")] = None
    forecast: Annotated[ForecastSummary, described("What is still to come.")] = ForecastSummary()
    batches: Annotated[
        list[BatchStatus], described("Started batches; those to come are a forecast and not stored.")
    ] = []
    counts: Annotated[PlanCounts, described("Progress.")] = PlanCounts()
    holds: Annotated[list[Hold], described("The ten worst holds.")] = []
    failures: Annotated[list[Failure], described("What failed.")] = []
    rollback_plan: Annotated[str | None, described("Plan that undoes this one.")] = None


class UpgradePlan(Resource, frozen=True, kw_only=True):
    """How and when: consent to a rollout, and its progress."""

    metadata: ObjectMeta
    spec: UpgradePlanSpec
    status: UpgradePlanStatus = UpgradePlanStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "UpgradePlan"


# ------------------------------------------------------------------------------------------------- NodeUpgrade


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
    kubelet_version: Annotated[str, described("Kubelet version; empty where it is not managed.")] = ""
    kubelet_artifact: Annotated[str, described("Image with the kubelet, by digest.")] = ""
    kubelet_binary: Annotated[str, described("Path of the kubelet on the node.")] = ""
    resource_name: Annotated[str, described("Extended resource that is expected on the node.")] = ""


class NodeUpgradeSpec(Resource, frozen=True, kw_only=True):
    """One visit to one node."""

    stack: Annotated[Text, described("Stack of the node.")]
    plan: Annotated[str | None, described("Plan that ordered the visit; none for Install and BringBack.")] = None
    closure: Annotated[Text, described("Closure: its nodes wait for each other.")]
    node: Annotated[NodeRef, described("Node to visit.")]
    reason: Annotated[VisitReason, described("Install, Rollout or BringBack.")]
    attempt: Annotated[int, described("Counts an Install or BringBack that failed and is tried again.")] = 1
    takes_over: Annotated[str | None, described("Uid of a NodeUpgrade that is no more, whose claim it takes.")] = None
    source: Annotated[NodeState, Meta(description="What the node runs before the visit.")]
    target: Annotated[NodeState, Meta(description="What it should run after it.")]


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


class NodeUpgradeStatus(Resource, frozen=True, kw_only=True):
    """How far a visit is."""

    phase: Annotated[NodePhase, described("Where the visit is.")] = NodePhase.PENDING
    reverting: Annotated[bool, described("Whether source and target are exchanged because the visit failed.")] = False
    reason: Annotated[str, described("Why it waits or how it ended, as one word.")] = ""
    message: Annotated[str, described("The same as a sentence.")] = ""
    deadline: Annotated[Timestamp | None, described("When the present phase is given up.")] = None
    steps: Annotated[list[StepStatus], described("Every phase that was entered.")] = []
    found: Annotated[Found, described("What was found before.")] = Found()
    conditions: Annotated[Conditions, described("Held.")] = []


class NodeUpgrade(Resource, frozen=True, kw_only=True):
    """One visit to one node, and how far it is."""

    metadata: ObjectMeta
    spec: NodeUpgradeSpec
    status: NodeUpgradeStatus = NodeUpgradeStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "NodeUpgrade"


# ------------------------------------------------------------------------------------------- CheckpointRequest


class OwnerRef(Resource, frozen=True, kw_only=True):
    kind: Annotated[Literal["Job"], described("Kind that is suspended. Only Job works today.")]
    name: Annotated[Text, described("Its name.")]
    uid: Annotated[Text, described("Its uid.")]


class Member(Resource, frozen=True, kw_only=True):
    pod: Annotated[Text, described("Pod name.")]
    uid: Annotated[Text, described("Pod uid: a replaced pod is another one.")]
    node: Annotated[Text, described("Node that it ran on.")]
    container: Annotated[Text, described("Container that answers.")]


class CheckpointRequestSpec(Resource, frozen=True, kw_only=True):
    """One conversation with one gang."""

    gang: Annotated[Text, described("Name of the gang.")]
    plan: Annotated[str | None, described("Plan that asks.")] = None
    closure: Annotated[str | None, described("Closure of the gang: its gangs are judged together.")] = None
    owner: Annotated[OwnerRef, described("What is suspended and resumed.")]
    members: Annotated[list[Member], described("Everybody who must acknowledge.")]
    method: Annotated[Literal["file", "api"], described("How is asked and answered.")] = "file"
    request_id: Annotated[int, described("Grows with every asking.")]
    asked_at: Annotated[Timestamp, described("When this asking began.")]
    park_seconds: Annotated[Seconds, described("How long a member stays parked without a word.")]


class Ack(Resource, frozen=True, kw_only=True):
    """One member's answer, whichever way it came."""

    pod_uid: Annotated[str, described("Uid of the pod that answered.")]
    request_id: Annotated[int, described("Which asking is answered.")]
    step: Annotated[int, described("Everything up to this step is safe.")]
    uri: Annotated[str, described("Where it is safe.")] = ""
    parked: Annotated[bool, described("Whether the member takes no further step until it is stopped or let go.")] = (
        False
    )
    refused: Annotated[str, described("Why the member refuses; empty where it does not.")] = ""


class CheckpointRequestStatus(Resource, frozen=True, kw_only=True):
    """How far the conversation is, and what was answered."""

    phase: Annotated[RequestPhase, described("Where the conversation is.")] = RequestPhase.ASKING
    reason: Annotated[str, described("Why it waits or how it ended, as one word.")] = ""
    message: Annotated[str, described("The same as a sentence.")] = ""
    deadline: Annotated[Timestamp | None, described("When the present phase is given up.")] = None
    acks: Annotated[
        list[Ack],
        Meta(
            description="Answers, one per member; responders patch these where the method is `api`.",
            extra_json_schema=keyed_by("podUid"),
        ),
    ] = []
    acknowledged_step: Annotated[int | None, described("Step that all members acknowledged.")] = None
    stopped_at: Annotated[Timestamp | None, described("When the stop was ordered.")] = None
    restart_by: Annotated[Timestamp | None, described("When the gang is restarted whatever became of the visit.")] = (
        None
    )
    restarted_at: Annotated[Timestamp | None, described("When the restart was ordered.")] = None
    restored_at: Annotated[Timestamp | None, described("When every member was seen past the acknowledged step.")] = None
    progress: Annotated[list[int], described("Latest step of each member after the restart.")] = []


class CheckpointRequest(Resource, frozen=True, kw_only=True):
    """Ask a gang to make its work safe; stop it, restart it, see it progress."""

    metadata: ObjectMeta
    spec: CheckpointRequestSpec
    status: CheckpointRequestStatus = CheckpointRequestStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "CheckpointRequest"


# ------------------------------------------------------------------------------------------------- DriverImage


class DriverImageSpec(Resource, frozen=True, kw_only=True):
    """A driver image that you built: for which driver and kernel it is, and where it lies."""

    vendor: Annotated[Literal["sim"], described("Whose driver.")]
    version: Annotated[VersionText, described("Driver version.")]
    kernel: Annotated[Text, described("Kernel that it is for, as in `uname -r`.")]
    image: Annotated[ImageReference, described("The image, by tag or digest.")]


class DriverImageStatus(Resource, frozen=True, kw_only=True):
    """Whether the image can be used, and under which digest."""

    phase: Annotated[DriverImagePhase, described("Where the image is.")] = DriverImagePhase.PENDING
    digest: Annotated[str | None, described("The image, pinned: name@sha256:...")] = None
    key: Annotated[str | None, described("Image key, as on the node's label.")] = None
    message: Annotated[str, described("Where the image is, as a sentence.")] = ""
    checked_at: Annotated[Timestamp | None, described("When the registry was asked last.")] = None


class DriverImage(Resource, frozen=True, kw_only=True):
    """The image for one driver on one kernel."""

    metadata: ObjectMeta
    spec: DriverImageSpec
    status: DriverImageStatus = DriverImageStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "DriverImage"
