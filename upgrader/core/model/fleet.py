"""Facts on nodes, gangs and stacks for all rules. Times are aware (UTC), durations are in seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct, structs

from upgrader.core.model.operands import OperandPod, PluginSettings
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.model.validation import AllReduce, Diagnostics
from upgrader.core.node_protocol.driver_services import DriverService


def settings_text(values: Iterable[tuple[str, str]]) -> str:
    """Settings of a kubelet, or parameters of modules, in the form on their node: JSON, by name; empty without any."""
    settings = dict(sorted(values))
    return json.dumps(settings, separators=(",", ":")) if settings else ""


class Target(Struct, frozen=True, kw_only=True):
    """The facts that a revision of a stack requires on its nodes, for drift; nothing of how operands are rendered."""

    stack: str
    revision: str
    driver_vendor: str  # of the driver, as in its DriverImage
    driver_version: str
    plugin_image: str
    resource_name: str
    vendor: str = ""  # of the operands; empty: that of the driver
    driver_recipe: str = ""  # empty: any
    driver_flavour: str = ""
    time_slices: int = 0  # number of devices as which each GPU is offered; 0: it is not shared
    mps_replicas: int = 0  # the same by MPS; never both
    mps_runtime: str = ""  # RuntimeClass of the MPS pods
    mig_strategy: str = ""
    runtime_image: str = ""  # of the runtime hook; empty: not managed
    runtime_digest: str = ""  # the same pinned, no part of the revision
    plugin_digest: str = ""  # plugin_image pinned (name@sha256:...), no part of the revision; empty: not resolved yet
    kubelet_version: str = ""  # empty: not managed
    kubelet_artifact: str = ""
    kubelet_digest: str = ""  # kubelet_artifact pinned, no part of the revision
    kubelet_binary: str = ""
    kubelet_settings: tuple[tuple[str, str], ...] = ()  # fields of KubeletConfiguration with their values, by name
    module_parameters: tuple[tuple[str, str], ...] = ()  # of the driver's modules, by module.parameter
    workload_image: str = ""  # runs on the GPUs before a node is released; empty: they are only checked
    workload_digest: str = ""  # the same pinned, no part of the revision
    workload_runtime: str = ""  # RuntimeClass of all programs of the validation
    all_reduce: AllReduce | None = None  # program of the level AllReduce
    all_reduce_digest: str = ""  # its image pinned, no part of the revision
    diagnostics: Diagnostics | None = None  # program of the level Diagnostics
    diagnostics_digest: str = ""  # its image pinned, no part of the revision
    kernel: str = ""  # that every node is to run; empty: the one that it runs
    reboot_select: tuple[str, ...] = ()  # how a node's next kernel is chosen; no part of the revision
    reboot_restart: tuple[str, ...] = ()

    def kernel_of(self, node: NodeFacts) -> str:
        """The kernel that a node is to run."""
        return self.kernel or node.kernel

    def empties(self, node: NodeFacts) -> bool:
        """Whether a plan's upgrade ends every pod on the node: it reboots it, or changes the kubelet's settings."""
        return self.reboots(node) or node.kubelet_settings != settings_text(self.kubelet_settings)

    def replaces_driver(self, node: NodeFacts, image: ImageFacts) -> bool:
        """Whether an upgrade to an image unloads the driver of a node: another image, or other parameters."""
        return image.key != node.driver_key or node.module_parameters != settings_text(self.module_parameters)

    def reboots(self, node: NodeFacts) -> bool:
        """Whether a plan's upgrade reboots the node, and so ends every pod on it."""
        return bool(node.kernel) and self.kernel_of(node) != node.kernel

    @property
    def as_it_runs(self) -> Target:
        """The same without a reboot: the target of a node whose reboot is not approved."""
        return structs.replace(self, kernel="")

    @property
    def driver(self) -> str:
        """The driver, for messages."""
        return f"{self.driver_recipe or self.driver_vendor} {self.driver_version}"

    @property
    def operands(self) -> str:
        """The vendor of the operands."""
        return self.vendor or self.driver_vendor

    @property
    def plugin(self) -> PluginSettings:
        """The settings of its device plugin."""
        return PluginSettings(
            vendor=self.operands,
            driver_vendor=self.driver_vendor,
            resource_name=self.resource_name,
            time_slices=self.time_slices,
            mps_replicas=self.mps_replicas,
            mps_runtime=self.mps_runtime,
            mig_strategy=self.mig_strategy,
            cdi=bool(self.runtime_image),
        )


class ImageFacts(Struct, frozen=True, kw_only=True):
    """A driver image that is Ready."""

    key: str
    vendor: str
    version: str
    kernel: str
    digest: str  # name@sha256:...
    recipe: str = ""  # empty: supplied by a user without a recipe
    flavour: str = ""
    services: tuple[DriverService, ...] = ()  # that run beside the driver
    unverified: bool = False  # not verified, and its stack does not allow that: no further node gets it

    @property
    def driver(self) -> str:
        """The driver, for messages."""
        return f"{self.recipe or self.vendor} {self.version}"


class ImageBuild(Struct, frozen=True, kw_only=True):
    """A DriverImage in any phase: in service, being built, or impossible to build."""

    name: str
    vendor: str
    version: str
    kernel: str
    phase: DriverImagePhase
    made_at: datetime | None = None
    recipe: str = ""
    flavour: str = ""
    os: str = ""
    arch: str = "amd64"
    message: str = ""
    unverified: bool = False  # as of ImageFacts


class RemovedDriver(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of a driver that was removed from a node because it is not for the kernel that the node booted."""

    driver: str  # key of the driver image
    revision: str
    kernel: str


class NodeFacts(Struct, frozen=True, kw_only=True):
    """Facts on a node of a pool."""

    name: str
    uid: str
    kernel: str  # status.nodeInfo.kernelVersion
    kubelet_version: str = ""  # without the leading v
    kubelet_settings: str = ""  # settings of its kubelet that a node upgrade has made, in the form of settings_text
    module_parameters: str = ""  # with which a node upgrade has loaded the driver, in the form of settings_text
    boot_id: str = ""
    gpus: int = 0  # capacity, with partitions counted as GPUs; 0 while the plugin is away
    gpus_allocatable: int = 0
    gpus_in_parts: tuple[tuple[str, int], ...] = ()  # of these, partitions: resources of other names than the stack's
    ready: bool = True
    unschedulable: bool = False
    skip: bool = False
    kernel_label: str = ""  # NFD's or the operator's, escaped; empty if it is missing
    labels_boot: str = ""  # boot on which the operator's labeller read it; empty if the label is of another writer
    driver_version_label: str = ""  # GFD's, empty if it is missing
    driver_key: str = ""  # the operator's label: key, "none" or empty
    plugin_key: str = ""
    runtime_key: str = ""  # of the runtime hook
    operands: str = ""  # on, off or empty
    revision: str = ""
    maintenance: str = ""  # value of the maintenance taint, empty without it
    closed_at: datetime | None = None  # when that taint was added
    claimed_by: str = ""  # uid of the NodeUpgrade that holds it
    released_by: str = ""  # uid of the NodeUpgrade that released it last
    foreign_labels: tuple[str, ...] = ()  # by which another operator deploys operands that upgrades would replace
    unpaused_labels: tuple[str, ...] = ()  # by which it deploys other operands, which may hold the driver
    adopted: bool = False  # a user has handed the node over
    adopted_at: str = ""  # when, as the consent states it
    removed_driver: RemovedDriver | None = None  # set while it waits without a driver for one for its kernel
    pending_kernel: str = ""  # installed, and booted next; empty if that is the running kernel, or unknown
    os: str = ""  # code name of its distribution, such as bookworm; empty if unknown
    arch: str = ""  # Debian's name
    held_by_claim: tuple[str, ...] = ()  # pods that hold GPUs of it by ResourceClaims, as namespace/name
    claimants: tuple[str, ...] = ()  # other stacks that select it too: then no upgrade of it starts
    unreadable: str = ""  # which of its values cannot be read, as a sentence: then no upgrade of it starts
    labels: dict[str, str] = {}

    @property
    def refused(self) -> bool:
        """Whether another operator manages the node: it is not touched until a user hands it over."""
        return bool(self.foreign_labels) and not self.adopted

    @property
    def left_alone(self) -> bool:
        """Whether no upgrade starts: a user, another operator or another stack holds it, or it is unreadable."""
        return self.skip or self.refused or bool(self.claimants) or bool(self.unreadable)

    @property
    def gpus_whole(self) -> int:
        """The GPUs that it offers by the stack's own name, without partitions."""
        return self.gpus_allocatable - sum(count for _, count in self.gpus_in_parts)

    @property
    def gpus_missing(self) -> bool:
        """Whether some of its GPUs are not allocatable and others are. If none is, the cause is the operands."""
        return 0 < self.gpus_allocatable < self.gpus

    @property
    def taken(self) -> bool:
        """Whether a node upgrade holds the node, or left its taint there."""
        return bool(self.claimed_by or self.maintenance)


class Owner(Struct, frozen=True, kw_only=True):
    """The object that is switched off to stop a gang (or that controls a pod)."""

    kind: str
    name: str
    uid: str
    api_version: str = "batch/v1"


class Terms(Struct, frozen=True, kw_only=True):
    """The usable declarations of a gang on checkpoint requests."""

    methods: tuple[str, ...] = ()  # in this order; the first that every member supports is used
    command: tuple[str, ...] = ()  # for exec
    endpoint: str = ""  # for http, :port/path
    signal: str = ""
    ack_scope: str = "all"  # or leader: its answer counts for all
    max_loss_seconds: int = 0  # work that may be lost; 0: only parked acknowledgements count
    on_deadline: str = "wait"  # or skip-node, terminate: the consequence of no acknowledgement in time


class MemberFacts(Struct, frozen=True, kw_only=True):
    """A pod that requests GPUs of a stack (or belongs to such a gang)."""

    pod: str
    uid: str
    namespace: str
    node: str
    container: str
    phase: str  # Pending, Running, Succeeded, Failed
    gpus: int = 0
    not_offered: str = ""  # GPUs that it requests by a name that nodes of the present revision do not offer
    terminating: bool = False
    request: str = ""  # the request id in its annotation, empty if there is none
    ephemeral_paths: tuple[str, ...] = ()  # mount paths of the answering container that are deleted with the pod
    volume_paths: tuple[str, ...] = ()  # mount paths of volumes that outlive the pod
    mounted: bool = False  # has the downward-API mount and the answer directory
    answers_mounted: bool = False  # has the answer directory
    shares_processes: bool = False  # process 1 of its containers is not their own program
    rank: int | None = None  # its place among the members, if its labels state it; 0 leads
    labels: dict[str, str] = {}  # for PodDisruptionBudgets
    started_at: datetime | None = None  # status.startTime
    unreadable: str = ""  # which of its values cannot be read, as a sentence: then its gang gets no request

    @property
    def running(self) -> bool:
        """Whether it can get a request: it is running, and not terminating."""
        return self.phase == "Running" and not self.terminating


class Refusals(Struct, frozen=True, kw_only=True):
    """Refusals and missing answers of a gang in this plan."""

    count: int = 0
    last: str = ""  # its own sentence
    until: datetime | None = None  # until then it gets no request
    left_out: bool = False  # it did not acknowledge in time, and declares that its nodes are then left out
    unanswered: int = 0  # how often it did not acknowledge in time
    unanswered_last: str = ""  # why not, the last time
    unanswered_until: datetime | None = None  # until then it gets no request either


class Gang(Struct, frozen=True, kw_only=True):
    """All pods that must run together."""

    name: str  # namespace/kind/owner name, or namespace/pod-group/name
    namespace: str
    members: tuple[MemberFacts, ...]  # pods that have not ended
    owner: Owner | None = None
    wanted: int = 0  # how many members it should have; fewer running means: not complete
    method: str = ""  # file, api, none; empty: undeclared
    timeout_seconds: int | None = None  # longest one checkpoint may take, if declared
    replicated: bool = False  # the owner replaces single pods (Deployment, StatefulSet): evicted, without a request
    stopped_by: str = ""  # plan recorded in the owner's stop annotation
    suspended: bool = False
    kind: str = ""  # Job, Pod, ReplicaSet, pod-group...
    terms: Terms = Terms()
    undeclared_because: str = ""  # why its declared methods are not usable, as a sentence
    bare: bool = False  # no member has a controller that creates its pods again
    cannot_stop: str = ""  # why its owner cannot be suspended and resumed; given if owner is None
    veto: str = ""  # annotation by which its owner forbids any disruption
    min_runtime_seconds: int = 0  # declared time slice: it is not stopped sooner after its latest start
    ends_at: datetime | None = None  # when it ends by itself, as declared; None: unknown
    resolved_by: str = ""  # the common property of its members by which they form a gang
    owners: tuple[Owner, ...] = ()  # all owners of its members, the nearest first
    lane: str = ""  # storage of its checkpoints; a limited number of gangs of a lane write at the same time
    lane_from_class: bool = (
        False  # the lane is not declared: it is the StorageClass of the claim that its members mount
    )
    refusals: Refusals = Refusals()

    @property
    def lane_shown(self) -> str:
        """Its lane and the source of it, for messages; empty if there is none."""
        return f"lane {self.lane}{', from StorageClass' if self.lane_from_class else ''}" if self.lane else ""

    @property
    def earliest_stop(self) -> datetime | None:
        """The end of its time slice, counted from the latest start among its members; None: now."""
        starts = [member.started_at for member in self.members if member.started_at is not None]
        if not self.min_runtime_seconds or not starts:
            return None
        return max(starts) + timedelta(seconds=self.min_runtime_seconds)

    @property
    def complete(self) -> bool:
        """Whether all its members run; only complete gangs get a request."""
        return len(self.members) >= self.wanted and all(member.running for member in self.members)

    @property
    def gpus(self) -> int:
        """GPUs of all members."""
        return sum(member.gpus for member in self.members)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that members run on."""
        return frozenset(member.node for member in self.members if member.node)


class StoppedOwner(Struct, frozen=True, kw_only=True):
    """An owner that carries the record of a stop, with or without its request."""

    owner: Owner
    namespace: str
    plan: str
    request: str  # name of the CheckpointRequest that stopped it
    off: bool = True  # False: it was switched on by others meanwhile

    @property
    def shown(self) -> str:
        """Kind, namespace and name, for messages."""
        return f"{self.owner.kind} {self.namespace}/{self.owner.name}"


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state of the cluster at one read, for one stack's pool."""

    cluster: str  # uid of kube-system
    taken_at: datetime
    nodes: tuple[NodeFacts, ...]
    gangs: tuple[Gang, ...]
    images: tuple[ImageFacts, ...]
    builds: tuple[ImageBuild, ...] = ()  # every DriverImage, Ready or not
    pdb_blocked: dict[str, str] = {}  # gang name -> name of a PodDisruptionBudget that allows no disruption now
    steering: bool = True  # whether restarted gangs can be steered
    shaped: tuple[str, ...] = ()  # namespaces in which the admission policy steers pods of any owner
    foreign_unavailable_gpus: int = 0  # GPUs that other plans have out of service
    api_server_version: str = ""  # gitVersion of the API server, for the kubelet's skew; empty: unknown
    operands: tuple[OperandPod, ...] = ()  # pods of operands on these nodes
    taken_back: str = ""  # revision that a rollback leads away from; empty: none
    stopped: tuple[StoppedOwner, ...] = ()  # in the whole cluster
    reboots_after_failed_unload: bool = False  # whether plans reboot a node whose driver cannot be unloaded
