"""UpgradePlan: how and when a revision gets to its nodes, and how far it is."""

from typing import Annotated

from msgspec import Meta

from upgrader.api.fields import Resource, Seconds, Text, Timestamp, described
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.phases import PlanPhase, Run


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
