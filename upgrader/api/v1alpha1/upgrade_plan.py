"""UpgradePlan: how and when a revision gets to its nodes, and how far it is."""

from typing import Annotated

import msgspec
from msgspec import Meta

from upgrader.api.fields import (
    CheckpointMethods,
    Conditions,
    Resource,
    Seconds,
    Text,
    TimeOfDay,
    Timestamp,
    TimeZone,
    described,
    keyed_by,
)
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.phases import DesiredState, OnFailure, PlanPhase
from upgrader.core.model.strategy import Weekday


class TopologyBudget(Resource, frozen=True, kw_only=True):
    key: Annotated[Text, described("Label of nodes; those with the same value fail together (rack, power, NVLink).")]
    max_unavailable: Annotated[
        int | str,
        Meta(
            description="Most GPUs out of service at once among the nodes with one value: "
            "a number or a percentage of theirs, rounded down.",
            extra_json_schema={
                "x-kubernetes-int-or-string": True,
                "minimum": 1,
                "pattern": "^(100|[1-9][0-9]?)%$",
            },
        ),
    ]


class Canary(Resource, frozen=True, kw_only=True):
    enabled: Annotated[
        bool, described("Whether one idle node of each class (GPUs, kernel, driver) is upgraded before all others.")
    ] = True
    soak_seconds: Annotated[
        int, Meta(description="How long canaries are watched before the next batch starts.", ge=0, le=604800)
    ] = 600


class Window(Resource, frozen=True, kw_only=True):
    days: Annotated[
        list[Weekday], Meta(description="Days on which it opens; every day unless given.", max_length=7)
    ] = []
    start: Annotated[TimeOfDay, described("When it opens, as 22:00.")] = "00:00"
    end: Annotated[TimeOfDay, described("When it closes; the next day where it is not later than start.")] = "00:00"
    time_zone: Annotated[TimeZone, described("IANA name, as Europe/Berlin.")] = "UTC"


class Strategy(Resource, frozen=True, kw_only=True):
    max_unavailable: Annotated[
        int | str,
        Meta(
            description="Most GPUs out of service at once, counted in GPUs of whole gangs: "
            "a number or a percentage, rounded down.",
            extra_json_schema={"x-kubernetes-int-or-string": True},
        ),
    ] = "25%"
    topology_budgets: Annotated[
        list[TopologyBudget],
        Meta(description="The same for parts of the pool.", max_length=16, extra_json_schema=keyed_by("key")),
    ] = []
    min_available_gpus: Annotated[
        int, Meta(description="A batch never leaves fewer GPUs of the pool in service.", ge=0)
    ] = msgspec.field(default=0, name="minAvailableGPUs")
    canary: Annotated[Canary, described("One node of each class first; their failure pauses the plan.")] = Canary()
    wait_for_completion_seconds: Annotated[
        int,
        Meta(
            description="Nodes whose jobs all end by themselves so long after the start are taken then: "
            "nobody is asked. 0 waits for none.",
            ge=0,
            le=2592000,
        ),
    ] = 3600
    windows: Annotated[
        list[Window], Meta(description="When batches may start; at any time unless given.", max_length=16)
    ] = []
    deadline_seconds: Annotated[
        Annotated[int, Meta(ge=60, le=31536000)] | None,
        described("After so long no batch starts; what is under way ends. Counted from the start."),
    ] = None
    on_failure: Annotated[
        OnFailure, described("When more fails than is tolerated: Pause, or Rollback to the revision before.")
    ] = OnFailure.PAUSE


class Lanes(Resource, frozen=True, kw_only=True):
    max_concurrent: Annotated[
        int, Meta(description="Gangs that write checkpoints to one storage at once; 0: any number.", ge=0, le=1000)
    ] = 0


class CheckpointDefaults(Resource, frozen=True, kw_only=True):
    timeout_seconds: Annotated[Seconds, described("Longest one checkpoint may take where the job does not say.")] = 1800
    retry_seconds: Annotated[
        Seconds,
        described("How long a gang that refused or did not answer is left alone; twice as long each time, up to 2 h."),
    ] = 600
    method: Annotated[
        CheckpointMethods | None,
        described("How jobs are asked that do not say: as the annotation checkpoint-method. They are waited for else."),
    ] = None
    lanes: Annotated[Lanes, described("How many checkpoints a storage takes at once.")] = Lanes()
    wait_for: Annotated[
        list[Text],
        Meta(
            description="Replicated owners whose pods are waited for instead of evicted, by gang name.", max_length=256
        ),
    ] = []


class ApprovalLimits(Resource, frozen=True, kw_only=True):
    """What was consented to: a forecast may change inside it, leaving it holds and asks again."""

    max_interruptions: Annotated[int, Meta(description="Most gangs that may be stopped.", ge=0)]
    max_lost_gpu_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None, described("Most GPU-hours that may be lost; any number unless given.")
    ] = None
    expendable: Annotated[
        list[Text],
        Meta(description="Gangs that may be ended without an acknowledgement, by name.", max_length=256),
    ] = []
    placement_unguaranteed: Annotated[
        bool, described("Whether gangs may be restarted although the cluster offers no way to steer them.")
    ] = False


class Approval(Resource, frozen=True, kw_only=True):
    by: Annotated[Text, described("Who approved.")]
    at: Annotated[Timestamp, described("When it was approved.")]
    limits: Annotated[ApprovalLimits, described("What was approved, in clear.")]


class UpgradePlanSpec(Resource, frozen=True, kw_only=True):
    """How and when a stack's revision gets to its nodes."""

    stack: Annotated[Text, described("GpuStack that this plan rolls out.")]
    target_revision: Annotated[Text, described("Revision of the stack, kept as a ControllerRevision.")]
    strategy: Annotated[Strategy, described("Order and pace.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, described("Defaults for jobs that do not say.")] = CheckpointDefaults()
    approval: Annotated[Approval | None, described("Consent. Nothing is touched without it.")] = None
    state: Annotated[DesiredState, described("Running, Paused (the started batch ends), Aborted, RolledBack.")] = (
        DesiredState.RUNNING
    )
    tolerated_failures: Annotated[
        int, Meta(description="The plan pauses by itself when more nodes or gangs than this have failed.", ge=0)
    ] = 0


class Blocker(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, described("Node, gang or upgrade group that waits.")]
    reason: Annotated[str, described("Why, as one word.")]
    message: Annotated[str, described("Why and what to do about it, as a sentence.")]


class GangShare(Resource, frozen=True, kw_only=True):
    gpus: Annotated[int, described("GPUs of all its members.")] = 0
    since: Annotated[Timestamp | None, described("When the latest of its members started.")] = None


class GroupStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[str, described("Name of the upgrade group.")]
    nodes: Annotated[list[str], described("Nodes taken together.")]
    gangs: Annotated[list[str], described("Gangs asked and stopped together.")] = []
    gpus: Annotated[int, described("GPUs out of service while it is upgraded, whole gangs counted.")] = 0
    expendable: Annotated[
        dict[str, list[str]],
        described("Gangs that nothing restarts and the approval names: uids of their pods, which are evicted."),
    ] = {}
    shares: Annotated[dict[str, GangShare], described("Of each gang, what its loss is counted by.")] = {}


class BatchStatus(Resource, frozen=True, kw_only=True):
    number: Annotated[int, described("Counted from 1.")]
    groups: Annotated[list[GroupStatus], described("What is upgraded in this batch; none once it has ended.")] = []
    node_count: Annotated[int, described("How many nodes were upgraded in it, once it has ended.")] = 0
    gang_count: Annotated[int, described("How many gangs were asked in it, once it has ended.")] = 0
    kind: Annotated[BatchKind, described("Why it came when it came: Canary, Idle, Asked.")] = BatchKind.ASKED
    started_at: Annotated[Timestamp, described("When the batch started.")]
    ask_until: Annotated[
        Timestamp, described("When asking ends: upgrade groups without all acknowledgements are let go.")
    ]
    ended_at: Annotated[Timestamp | None, described("When all its nodes had ended and its gangs were restored.")] = None
    classes: Annotated[
        dict[str, str], described("GPU model, kernel and driver before the upgrade, by node; for canaries only.")
    ] = {}


class CanaryStatus(Resource, frozen=True, kw_only=True):
    batch: Annotated[int, described("Batch in which it was upgraded.")]
    node: Annotated[str, described("Its name.")]
    node_class: Annotated[str, described("GPU model, kernel and driver before the upgrade.")]


class EndedBatches(Resource, frozen=True, kw_only=True):
    """What counts of batches that have ended, summed up: the status does not grow with them."""

    count: Annotated[int, described("How many have ended.")] = 0
    lost_gpu_hours: Annotated[float, described("What they cost.")] = 0.0
    terminated: Annotated[int, described("Gangs that nothing restarts and that were ended in them.")] = 0
    canaries: Annotated[list[CanaryStatus], described("Canaries of which there is still a NodeUpgrade.")] = []


class ForecastSummary(Resource, frozen=True, kw_only=True):
    batches: Annotated[int, described("Batches still to start.")] = 0
    nodes: Annotated[int, described("Nodes still to upgrade.")] = 0
    interruptions: Annotated[int, described("Gangs still to be stopped.")] = 0
    blocked: Annotated[int, described("Nodes blocked.")] = 0
    waiting_for_completion: Annotated[int, described("Nodes that wait for the natural end of their jobs.")] = 0
    next_starts_at: Annotated[Timestamp | None, described("When the next batch starts.")] = None
    waits_for: Annotated[str, described("What the next batch waits for.")] = ""
    lost_gpu_hours: Annotated[float, described("GPU-hours that the rest is expected to cost.")] = 0.0
    finish_p50: Annotated[Timestamp | None, described("When the plan ends, as likely earlier as later.")] = None
    finish_p95: Annotated[Timestamp | None, described("When it ends in 95 of 100 cases.")] = None


class Loss(Resource, frozen=True, kw_only=True):
    """GPU-hours."""

    predicted: Annotated[float, described("What the whole plan was expected to cost when it started.")] = 0.0
    actual: Annotated[float, described("What it has cost so far.")] = 0.0


class PlanCounts(Resource, frozen=True, kw_only=True):
    nodes: Annotated[int, described("Nodes that this plan should upgrade.")] = 0
    succeeded: Annotated[int, described("Nodes given back on the target revision.")] = 0
    failed: Annotated[int, described("Nodes whose upgrade failed.")] = 0
    interruptions: Annotated[int, described("Gangs stopped by this plan.")] = 0
    restored: Annotated[int, described("Gangs seen past their acknowledged step.")] = 0


class Failure(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, described("Node or gang.")]
    reason: Annotated[str, described("Why, as one word.")]
    message: Annotated[str, described("What happened and what to do.")]


class UpgradePlanStatus(Resource, frozen=True, kw_only=True):
    """How far a rollout is, and what blocks it."""

    observed_generation: Annotated[int | None, described("Generation of the spec that this status speaks of.")] = None
    phase: Annotated[PlanPhase, described("Where the plan is.")] = PlanPhase.PROPOSED
    reason: Annotated[str, described("Why it is there, as one word.")] = ""
    message: Annotated[str, described("Where the plan is and what it waits for, as a sentence.")] = ""
    changed: Annotated[str, described("What the latest forecast says otherwise than the one before, and when.")] = ""
    soak_until: Annotated[Timestamp | None, described("Until when the canaries are watched.")] = None
    reserved_nodes: Annotated[list[str], described("Nodes that are kept free for the plan until their jobs end.")] = []
    lost_gpu_hours: Annotated[Loss, described("Predicted and actual loss.")] = Loss()
    stack_revision: Annotated[str | None, described("Update revision of the stack when the plan started.")] = None
    revisions_left: Annotated[list[str], described("Revisions that gangs are steered away from.")] = []
    started_at: Annotated[Timestamp | None, described("When it started.")] = None
    ended_at: Annotated[Timestamp | None, described("When it ended.")] = None
    forecast: Annotated[ForecastSummary, described("What is still to come.")] = ForecastSummary()
    batches: Annotated[
        list[BatchStatus],
        described("The batch that is under way, and the latest that ended; those to come are not stored."),
    ] = []
    ended: Annotated[EndedBatches, described("All batches that have ended, in sums.")] = EndedBatches()
    counts: Annotated[PlanCounts, described("Progress.")] = PlanCounts()
    stopped_owners: Annotated[
        list[str],
        described(
            "Uids of the owners of gangs that this plan has stopped: it stops none of them again, "
            "also when their CheckpointRequests are gone."
        ),
    ] = []
    blockers: Annotated[list[Blocker], described("The ten worst blockers.")] = []
    failures: Annotated[list[Failure], described("What failed.")] = []
    ignored_requests: Annotated[
        list[str],
        Meta(
            description="CheckpointRequests, as NAMESPACE/NAME, that carry the plan's label and that it did not make: "
            "nothing is done for them. Ten at most.",
            max_length=10,
        ),
    ] = []
    conditions: Annotated[
        Conditions,
        described("StepFailed: parts of the plan's step that fail, with the error; everything else goes on."),
    ] = []
    rollback_plan: Annotated[str | None, described("Plan that undoes this one.")] = None


class UpgradePlan(Resource, frozen=True, kw_only=True):
    """How and when: consent to a rollout, and its progress."""

    metadata: ObjectMeta
    spec: UpgradePlanSpec
    status: UpgradePlanStatus = UpgradePlanStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "UpgradePlan"
