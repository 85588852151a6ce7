"""The fields of Kubernetes' own objects that the controller reads. All other fields are skipped while decoding."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from upgrader.core.fields import keyed_by


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base: frozen, camelCase, unknown fields ignored.

    Decoded objects have no cycles. Python's garbage collector would examine each object of a list while the rest is
    decoded; with 14,000 pods that takes longer than the decoding.
    """


class OwnerReference(Wire, frozen=True, kw_only=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Condition(Wire, frozen=True, kw_only=True):
    """As in Kubernetes' API conventions."""

    type: Annotated[str, Meta(description="Type of the condition.")]
    status: Annotated[str, Meta(description="Status of the condition: True, False or Unknown.")]
    reason: Annotated[str, Meta(description="Machine-readable reason for the last transition.")] = ""
    message: Annotated[str, Meta(description="Human-readable message with details of the last transition.")] = ""
    last_transition_time: Annotated[str | None, Meta(description="Time of the last change of the status.")] = None
    observed_generation: Annotated[
        int | None, Meta(description="Generation of the spec for which the condition was set.")
    ] = None


Conditions = Annotated[list[Condition], Meta(extra_json_schema=keyed_by("type"))]


# ---- Node


class Taint(Wire, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeInfo(Wire, frozen=True, kw_only=True):
    kernel_version: str = ""
    kubelet_version: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    architecture: str = ""
    os_image: str = ""


class NodeSpec(Wire, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Wire, frozen=True, kw_only=True):
    allocatable: dict[str, str | int] = {}
    capacity: dict[str, str | int] = {}
    conditions: list[Condition] = []
    node_info: NodeInfo = NodeInfo()


class Node(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ---- Pod


class Resources(Wire, frozen=True, kw_only=True):
    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class VolumeMount(Wire, frozen=True, kw_only=True):
    name: str
    mount_path: str
    sub_path: str = ""


class Container(Wire, frozen=True, kw_only=True):
    name: str
    image: str = ""
    resources: Resources = Resources()
    volume_mounts: list[VolumeMount] = []


class HostPath(Wire, frozen=True, kw_only=True):
    path: str


class FieldRef(Wire, frozen=True, kw_only=True):
    field_path: str = ""


class DownwardItem(Wire, frozen=True, kw_only=True):
    path: str
    field_ref: FieldRef = FieldRef()


class DownwardVolume(Wire, frozen=True, kw_only=True):
    items: list[DownwardItem] = []


class VolumeSource(Wire, frozen=True, kw_only=True):
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)


class ProjectedVolume(Wire, frozen=True, kw_only=True):
    sources: list[VolumeSource] = []


class Volume(Wire, frozen=True, kw_only=True):
    """Only the types of volumes that are read. A volume of any other type is treated as one that is deleted with
    its pod.
    """

    name: str
    host_path: HostPath | None = None
    empty_dir: dict[str, Any] | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    projected: ProjectedVolume | None = None
    persistent_volume_claim: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None
    cephfs: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None


class SchedulingGroup(Wire, frozen=True, kw_only=True):
    pod_group_name: str = ""


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    """Devices that a pod claims: by an existing ResourceClaim, or by one that is created from a template."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    scheduling_group: SchedulingGroup | None = None
    active_deadline_seconds: int | None = None
    containers: list[Container] = []
    init_containers: list[Container] = []
    volumes: list[Volume] = []
    resource_claims: list[PodResourceClaim] = []
    termination_grace_period_seconds: int | None = None
    share_process_namespace: bool = False
    host_pid: bool = msgspec.field(name="hostPID", default=False)


class Terminated(Wire, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class Waiting(Wire, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True, kw_only=True):
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(Wire, frozen=True, kw_only=True):
    name: str
    image: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class ExtendedResourceClaim(Wire, frozen=True, kw_only=True):
    """The claim by which the scheduler gives a pod extended resources that no device plugin advertises."""

    resource_claim_name: str = ""


class PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resource_claim_statuses: list[PodResourceClaim] = []
    extended_resource_claim_status: ExtendedResourceClaim | None = None


class Pod(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# ---- Job, DaemonSet, ControllerRevision, PodDisruptionBudget


class PodTemplate(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class JobSpec(Wire, frozen=True, kw_only=True):
    suspend: bool = False
    parallelism: int | None = None
    completions: int | None = None
    managed_by: str | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Wire, frozen=True, kw_only=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None  # time of the last resumption
    conditions: list[Condition] = []


class Job(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class OwnerObject(Wire, frozen=True, kw_only=True):
    """An owner of pods, of any kind. core.workloads.owner_objects interprets its spec and status."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class LabelSelector(Wire, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []


class PodDisruptionBudgetSpec(Wire, frozen=True, kw_only=True):
    selector: LabelSelector | None = None  # None selects no pod, an empty selector selects all pods


class PodDisruptionBudgetStatus(Wire, frozen=True, kw_only=True):
    disruptions_allowed: int = 0
    observed_generation: int | None = None


class PodDisruptionBudget(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PersistentVolumeClaimSpec(Wire, frozen=True, kw_only=True):
    storage_class_name: str | None = None


class PersistentVolumeClaim(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class DaemonSetStatus(Wire, frozen=True, kw_only=True):
    desired_number_scheduled: int = 0


class DaemonSetSpec(Wire, frozen=True, kw_only=True):
    template: PodTemplate = PodTemplate()


class DaemonSet(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class ControllerRevision(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    data: dict[str, Any] = {}
    revision: int = 0


class Namespace(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


class EventSeries(Wire, frozen=True, kw_only=True):
    last_observed_time: str | None = None


class Event(Wire, frozen=True, kw_only=True):
    """An event about an object. A repeated event is the same Event object."""

    metadata: ObjectMeta
    reason: str = ""
    message: str = ""
    series: EventSeries | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def last_time(self) -> str:
        """Time of the last occurrence, RFC 3339. Which of the times is set depends on the reporting component."""
        again = self.series.last_observed_time if self.series is not None else None
        return again or self.last_timestamp or self.event_time or self.metadata.creation_timestamp


class Unread(Wire, frozen=True, kw_only=True):
    """An object of which only the existence matters."""

    metadata: ObjectMeta


class AdmissionPolicyBindingSpec(Wire, frozen=True, kw_only=True):
    policy_name: str = ""


class AdmissionPolicyBinding(Wire, frozen=True, kw_only=True):
    """The binding of a MutatingAdmissionPolicy or a ValidatingAdmissionPolicy."""

    metadata: ObjectMeta
    spec: AdmissionPolicyBindingSpec = AdmissionPolicyBindingSpec()
