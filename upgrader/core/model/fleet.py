"""Values about nodes, gangs and stacks that the rules work on. Times are aware (UTC), durations are in seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct, structs

from upgrader.core.model.operands import OperandPod, PluginSettings
from upgrader.core.model.phases import DriverImagePhase


def settings_text(values: Iterable[tuple[str, str]]) -> str:
    """Settings of a kubelet as they stand on its node: JSON, by name; empty where there are none."""
    found = dict(sorted(values))
    return json.dumps(found, separators=(",", ":")) if found else ""


class Target(Struct, frozen=True, kw_only=True):
    """What a revision of a stack asks of its nodes: the facts that drift is about, nothing of how we render them."""

    stack: str
    revision: str
    driver_vendor: str  # of the driver, as its DriverImage says
    driver_version: str
    plugin_image: str
    resource_name: str
    vendor: str = ""  # whose operands run; empty: the driver's own
    driver_recipe: str = ""  # empty: any
    driver_flavour: str = ""
    time_slices: int = 0  # as how many devices each one is offered; 0: it is not shared
    mps_replicas: int = 0  # the same by MPS; never both
    mps_runtime: str = ""  # RuntimeClass of who does that
    mig_strategy: str = ""
    runtime_image: str = ""  # of the runtime hook; empty: not ours
    runtime_digest: str = ""  # the same pinned, no part of the revision
    plugin_digest: str = ""  # plugin_image pinned (name@sha256:...), no part of the revision; empty: not resolved yet
    kubelet_version: str = ""  # empty: not managed
    kubelet_artifact: str = ""
    kubelet_digest: str = ""  # kubelet_artifact pinned, no part of the revision
    kubelet_binary: str = ""
    kubelet_settings: tuple[tuple[str, str], ...] = ()  # fields of KubeletConfiguration with their values, by name
    workload_image: str = ""  # works on the GPUs before a node is given back; empty: they are looked at only
    workload_digest: str = ""  # the same pinned, no part of the revision
    workload_runtime: str = ""  # its RuntimeClass
    kernel: str = ""  # that every node is to run; empty: whichever it runs
    reboot_select: tuple[str, ...] = ()  # how a node's next kernel is chosen; no part of the revision
    reboot_restart: tuple[str, ...] = ()

    def kernel_of(self, node: NodeFacts) -> str:
        """The kernel that a node is to run."""
        return self.kernel or node.kernel

    def empties(self, node: NodeFacts) -> bool:
        """Whether a plan's upgrade ends every pod on the node: it is restarted, or its kubelet places pods anew."""
        return self.reboots(node) or node.kubelet_settings != settings_text(self.kubelet_settings)

    def reboots(self, node: NodeFacts) -> bool:
        """Whether a plan's upgrade restarts the node, and so ends every pod on it."""
        return bool(node.kernel) and self.kernel_of(node) != node.kernel

    @property
    def as_it_runs(self) -> Target:
        """The same without a reboot: what a node is given that nobody agreed to restart."""
        return structs.replace(self, kernel="")

    @property
    def driver(self) -> str:
        """The driver, for people."""
        return f"{self.driver_recipe or self.driver_vendor} {self.driver_version}"

    @property
    def operands(self) -> str:
        """The vendor whose operands run."""
        return self.vendor or self.driver_vendor

    @property
    def plugin(self) -> PluginSettings:
        """What its device plugin is told."""
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
    recipe: str = ""  # empty: brought by a person who did not say
    flavour: str = ""
    unverified: bool = False  # nobody vouches for it, and its stack does not allow that: no node is given it anew

    @property
    def driver(self) -> str:
        """The driver, for people."""
        return f"{self.recipe or self.vendor} {self.version}"


class ImageBuild(Struct, frozen=True, kw_only=True):
    """A DriverImage in any phase: what is there, what is on its way, what cannot be made."""

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
    """What a node had whose driver we took away because it is not for the kernel that the node came up with."""

    driver: str  # key of the driver image
    revision: str
    kernel: str


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What we believe about a node of a pool."""

    name: str
    uid: str
    kernel: str  # status.nodeInfo.kernelVersion
    kubelet_version: str = ""  # without the leading v
    kubelet_settings: str = ""  # those of its kubelet that a node upgrade has made, as settings_text has them
    boot_id: str = ""
    gpus: int = 0  # capacity, partitions are counted as GPUs are; 0 where the plugin is away
    gpus_allocatable: int = 0
    gpus_in_parts: tuple[tuple[str, int], ...] = ()  # of these, partitions: resources of other names than the stack's
    ready: bool = True
    unschedulable: bool = False
    skip: bool = False
    kernel_label: str = ""  # NFD's or our labeller's, escaped; empty where it is missing
    labels_boot: str = ""  # boot on which our labeller read it; empty where the label is somebody else's
    driver_version_label: str = ""  # GFD's, empty where it is missing
    driver_key: str = ""  # our label: key, "none" or empty
    plugin_key: str = ""
    runtime_key: str = ""  # of the runtime hook
    operands: str = ""  # on, off or empty
    revision: str = ""
    maintenance: str = ""  # value of our taint, empty where it is not tainted by us
    closed_at: datetime | None = None  # when our taint was added
    claimed_by: str = ""  # uid of the NodeUpgrade that holds it
    released_by: str = ""  # uid of the one that released it last
    theirs: tuple[str, ...] = ()  # labels by which another operator deploys here what we would
    adopted: bool = False  # a person has handed the node over
    removed_driver: RemovedDriver | None = None  # set while it waits without a driver for one for its kernel
    pending_kernel: str = ""  # installed, and taken by its next boot; empty where that is the running one, or unknown
    os: str = ""  # code name of its distribution, as bookworm; empty where it does not say
    arch: str = ""  # as Debian names it
    held_by_claim: tuple[str, ...] = ()  # pods that hold GPUs of it by ResourceClaims, as namespace/name
    claimants: tuple[str, ...] = ()  # other stacks that select it too: then nothing is begun on it
    unreadable: str = ""  # which of its values cannot be read, as a sentence: then nothing is begun on it
    labels: dict[str, str] = {}

    @property
    def refused(self) -> bool:
        """Whether another operator has the node: it is not touched until somebody hands it over."""
        return bool(self.theirs) and not self.adopted

    @property
    def left_alone(self) -> bool:
        """Whether nothing is begun on it: a person, another operator or another stack has it, or it cannot be read."""
        return self.skip or self.refused or bool(self.claimants) or bool(self.unreadable)

    @property
    def gpus_whole(self) -> int:
        """Of the GPUs that it offers, those by the stack's own name: no partition passes for one."""
        return self.gpus_allocatable - sum(count for _, count in self.gpus_in_parts)

    @property
    def gpus_missing(self) -> bool:
        """Whether some of its GPUs are not well, the others are. Where all are away it is the operands that are."""
        return 0 < self.gpus_allocatable < self.gpus

    @property
    def taken(self) -> bool:
        """Whether a node upgrade holds the node, or left its taint there."""
        return bool(self.claimed_by or self.maintenance)


class Owner(Struct, frozen=True, kw_only=True):
    """What is switched off to stop a gang (or what controls a pod)."""

    kind: str
    name: str
    uid: str
    api_version: str = "batch/v1"


class Terms(Struct, frozen=True, kw_only=True):
    """What a gang declares about being asked, as far as it can be used."""

    methods: tuple[str, ...] = ()  # in this order; the first that works for every member is used
    command: tuple[str, ...] = ()  # for exec
    endpoint: str = ""  # for http, :port/path
    signal: str = ""
    ack_scope: str = "all"  # or leader: its answer counts for all
    max_loss_seconds: int = 0  # work that may be thrown away; 0: only parked acknowledgements count
    on_deadline: str = "wait"  # or skip-node, terminate: what no acknowledgement in time means


class MemberFacts(Struct, frozen=True, kw_only=True):
    """A pod that asks for GPUs of a stack (or belongs to such a gang)."""

    pod: str
    uid: str
    namespace: str
    node: str
    container: str
    phase: str  # Pending, Running, Succeeded, Failed
    gpus: int = 0
    not_offered: str = ""  # GPUs that it asks for by a name that nodes of the present revision do not offer
    terminating: bool = False
    request: str = ""  # our annotation on it, empty where there is none
    ephemeral_paths: tuple[str, ...] = ()  # mount paths of the answering container that die with the pod
    volume_paths: tuple[str, ...] = ()  # mount paths of volumes that outlive the pod
    mounted: bool = False  # has the downward-API mount and the answer directory
    answers_mounted: bool = False  # has the answer directory
    shares_processes: bool = False  # process 1 of its containers is not their own program
    rank: int | None = None  # its place among the members where its labels say so; 0 leads
    labels: dict[str, str] = {}  # for PodDisruptionBudgets
    started_at: datetime | None = None  # status.startTime
    unreadable: str = ""  # which of its values cannot be read, as a sentence: then its gang is not asked

    @property
    def running(self) -> bool:
        """Whether it can be asked: running, and nobody is ending it."""
        return self.phase == "Running" and not self.terminating


class Refusals(Struct, frozen=True, kw_only=True):
    """What a gang has said no to in this plan, or nothing."""

    count: int = 0
    last: str = ""  # its own sentence
    until: datetime | None = None  # it is left alone until then
    left_out: bool = False  # it did not acknowledge in time, and declares that its nodes are left out then
    unanswered: int = 0  # how often it did not acknowledge in time
    unanswered_last: str = ""  # why not, the last time
    unanswered_until: datetime | None = None  # it is left alone until then, too


class Gang(Struct, frozen=True, kw_only=True):
    """All pods that must run together."""

    name: str  # namespace/kind/owner name, or namespace/pod-group/name
    namespace: str
    members: tuple[MemberFacts, ...]  # pods that have not ended
    owner: Owner | None = None
    wanted: int = 0  # how many members it should have; fewer running means: not complete
    method: str = ""  # file, api, none; empty: undeclared
    timeout_seconds: int | None = None  # longest one checkpoint may take, where declared
    replicated: bool = False  # owner replaces pods by itself (Deployment, StatefulSet): evicted, not asked
    stopped_by: str = ""  # plan recorded in the owner's stop annotation
    suspended: bool = False
    kind: str = ""  # Job, Pod, ReplicaSet, pod-group...
    terms: Terms = Terms()
    undeclared_because: str = ""  # declared, but it cannot be asked: why, as a sentence
    bare: bool = False  # no member has a controller: nothing makes its pods again
    cannot_stop: str = ""  # why its owner cannot be suspended and resumed by us; given where owner is None
    veto: str = ""  # annotation by which its owner forbids any disruption
    min_runtime_seconds: int = 0  # declared time slice: nobody stops it sooner after its latest start
    ends_at: datetime | None = None  # when it ends by itself, as far as it says; None: unknown
    resolved_by: str = ""  # what its members have in common, by which they were found to belong together
    owners: tuple[Owner, ...] = ()  # everything above its members, the nearest first
    lane: str = ""  # storage that its checkpoints go to; at most so many gangs of a lane write at once
    lane_from_class: bool = False  # nobody declared that: it is the StorageClass of the claim that its members mount
    refusals: Refusals = Refusals()

    @property
    def lane_shown(self) -> str:
        """Its lane and where it is known from, for people; empty where there is none."""
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
        """Whether all its members run; others are never asked."""
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
    """An owner that carries the record of our stop, whatever became of the request."""

    owner: Owner
    namespace: str
    plan: str
    request: str  # name of the CheckpointRequest that stopped it
    off: bool = True  # False: somebody switched it on meanwhile

    @property
    def shown(self) -> str:
        """Kind, namespace and name, for people."""
        return f"{self.owner.kind} {self.namespace}/{self.owner.name}"


class Snapshot(Struct, frozen=True, kw_only=True):
    """The world as it was read once, for one stack's pool."""

    cluster: str  # uid of kube-system
    taken_at: datetime
    nodes: tuple[NodeFacts, ...]
    gangs: tuple[Gang, ...]
    images: tuple[ImageFacts, ...]
    builds: tuple[ImageBuild, ...] = ()  # every DriverImage, Ready or not
    pdb_blocked: dict[str, str] = {}  # gang name -> name of a PodDisruptionBudget that allows no disruption now
    steering: bool = True  # whether restarted gangs can be steered
    shaped: tuple[str, ...] = ()  # namespaces in which our admission policy steers pods, whatever owner they have
    foreign_unavailable_gpus: int = 0  # GPUs that other plans have out of service
    api_server_version: str = ""  # gitVersion of the API server, for the kubelet's skew; empty: unknown
    operands: tuple[OperandPod, ...] = ()  # pods of operands on these nodes
    taken_back: str = ""  # revision that a rollback leads away from; empty: none
    stopped: tuple[StoppedOwner, ...] = ()  # in the whole cluster
