"""UpgradePlan: how and when a revision is rolled out to its nodes, and the progress of the rollout."""

from typing import Annotated

from msgspec import Meta

from upgrader.api.kubernetes import Conditions, ObjectMeta
from upgrader.api.v1alpha1.plan_strategy import CheckpointDefaults, Strategy
from upgrader.core.fields import (
    Resource,
    Text,
    Timestamp,
    field_doc,
)
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.phases import DesiredState, PlanPhase


class ApprovalLimits(Resource, frozen=True, kw_only=True):
    """Limits of the approval. If the forecast exceeds them, the plan is held until it is approved again."""

    max_interruptions: Annotated[int, Meta(description="Maximum number of gangs that the plan may stop.", ge=0)]
    max_lost_gpu_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        field_doc("Maximum number of GPU-hours that the plan may lose. If unset, there is no limit."),
    ] = None
    expendable: Annotated[
        list[Text],
        Meta(
            description="Names of gangs, as NAMESPACE/KIND/NAME, that may be ended without an acknowledgement.",
            max_length=256,
        ),
    ] = []
    placement_unguaranteed: Annotated[
        bool,
        field_doc(
            "Whether gangs may be stopped even if the cluster has no means to place their restarted pods "
            "on upgraded nodes. Defaults to false."
        ),
    ] = False


class Approval(Resource, frozen=True, kw_only=True):
    by: Annotated[Text, field_doc("Name of the approver.")]
    at: Annotated[Timestamp, field_doc("Time of the approval.")]
    limits: Annotated[ApprovalLimits, field_doc("Limits of the approval.")]


class UpgradePlanSpec(Resource, frozen=True, kw_only=True):
    """Desired rollout of a revision of a stack to its nodes."""

    stack: Annotated[Text, field_doc("Name of the GpuStack that is rolled out. Immutable.")]
    target_revision: Annotated[
        Text, field_doc("Name of the revision that is rolled out, stored as a ControllerRevision. Immutable.")
    ]
    strategy: Annotated[Strategy, field_doc("Order and pace of the rollout.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, field_doc("Defaults for jobs without checkpoint annotations.")] = (
        CheckpointDefaults()
    )
    approval: Annotated[
        Approval | None,
        field_doc("Approval of the plan. If unset, the plan does not change any node or job."),
    ] = None
    state: Annotated[
        DesiredState,
        field_doc(
            "Desired state. Running: batches start. Paused: the current batch is completed, and no "
            "further batch starts. Aborted: upgrades that have not stopped anything are withdrawn, and "
            "all others are completed; this is final. RolledBack: the plan is aborted, and another plan "
            "rolls its nodes back to their previous revision. Defaults to Running."
        ),
    ] = DesiredState.RUNNING
    tolerated_failures: Annotated[
        int,
        Meta(
            description="Maximum number of failed nodes and gangs. When more have failed, the action of "
            "strategy.onFailure is taken. Defaults to 0.",
            ge=0,
        ),
    ] = 0


class BlockerStatus(Resource, frozen=True, kw_only=True):
    """A blocker as the status stores it, beside `Blocker` of a forecast: without its nodes, which may be thousands, and
    with a reason that another release may not have.
    """

    subject: Annotated[str, field_doc("Name of the node, gang or upgrade group that is blocked.")]
    reason: Annotated[str, field_doc("Machine-readable reason.")]
    message: Annotated[str, field_doc("Human-readable message with the cause and a resolution.")]


class GangShare(Resource, frozen=True, kw_only=True):
    gpus: Annotated[int, field_doc("Number of GPUs of all members of the gang.")] = 0
    since: Annotated[Timestamp | None, field_doc("Start time of the member that started last.")] = None


class GroupStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[str, field_doc("Name of the upgrade group.")]
    nodes: Annotated[list[str], field_doc("Nodes of the group.")]
    gangs: Annotated[list[str], field_doc("Gangs of the group, which are stopped together.")] = []
    gpus: Annotated[
        int,
        field_doc(
            "Number of GPUs that are out of service during the upgrade of the group, with all GPUs of its"
            " gangs counted."
        ),
    ] = 0
    expendable: Annotated[
        dict[str, list[str]],
        field_doc("Expendable gangs that are not restarted, with the UIDs of their pods, which are evicted."),
    ] = {}
    shares: Annotated[dict[str, GangShare], field_doc("Data from which the lost GPU-hours are computed, by gang.")] = {}


class BatchStatus(Resource, frozen=True, kw_only=True):
    number: Annotated[int, field_doc("Number of the batch, starting at 1.")]
    groups: Annotated[
        list[GroupStatus], field_doc("Upgrade groups of the batch. Empty after the batch has ended.")
    ] = []
    node_count: Annotated[
        int, field_doc("Number of nodes that were upgraded in the batch. Set after the batch has ended.")
    ] = 0
    gang_count: Annotated[
        int,
        field_doc(
            "Number of gangs that were requested to write a checkpoint in the batch. Set after the batch has ended."
        ),
    ] = 0
    kind: Annotated[
        BatchKind,
        field_doc(
            "Kind of the batch: Canary, Idle (no gang is stopped) or Asked (gangs are requested to write a checkpoint)."
        ),
    ] = BatchKind.ASKED
    started_at: Annotated[Timestamp, field_doc("Time at which the batch started.")]
    ask_until: Annotated[
        Timestamp,
        field_doc(
            "Time until which gangs can acknowledge. Upgrade groups with missing acknowledgements are "
            "then removed from the batch."
        ),
    ]
    ended_at: Annotated[
        Timestamp | None, field_doc("Time at which all node upgrades had ended and all gangs were restored.")
    ] = None
    classes: Annotated[
        dict[str, str],
        field_doc("GPU model, kernel and driver of each node before the upgrade. Set for canaries only."),
    ] = {}


class CanaryStatus(Resource, frozen=True, kw_only=True):
    batch: Annotated[int, field_doc("Number of the batch of the canary.")]
    node: Annotated[str, field_doc("Name of the node.")]
    node_class: Annotated[str, field_doc("GPU model, kernel and driver of the node before the upgrade.")]


class EndedBatches(Resource, frozen=True, kw_only=True):
    """Totals of the batches that have ended, so that the status does not grow with them."""

    count: Annotated[int, field_doc("Number of batches that have ended.")] = 0
    lost_gpu_hours: Annotated[float, field_doc("GPU-hours that were lost in these batches.")] = 0.0
    terminated: Annotated[
        int, field_doc("Number of expendable gangs that were ended in these batches and are not restarted.")
    ] = 0
    canaries: Annotated[list[CanaryStatus], field_doc("Canaries whose NodeUpgrade still exists.")] = []


class ForecastSummary(Resource, frozen=True, kw_only=True):
    batches: Annotated[int, field_doc("Number of batches that have not started.")] = 0
    nodes: Annotated[int, field_doc("Number of nodes that are not upgraded yet.")] = 0
    interruptions: Annotated[int, field_doc("Number of gangs that are expected to be stopped.")] = 0
    blocked: Annotated[int, field_doc("Number of blocked nodes.")] = 0
    waiting_for_completion: Annotated[int, field_doc("Number of nodes that wait for completion of their jobs.")] = 0
    next_starts_at: Annotated[Timestamp | None, field_doc("Time at which the next batch is expected to start.")] = None
    waits_for: Annotated[str, field_doc("Human-readable message that states what the next batch waits for.")] = ""
    lost_gpu_hours: Annotated[float, field_doc("GPU-hours that the rest of the plan is expected to lose.")] = 0.0
    finish_p50: Annotated[Timestamp | None, field_doc("Median of the expected end time.")] = None
    finish_p95: Annotated[Timestamp | None, field_doc("95th percentile of the expected end time.")] = None


class Loss(Resource, frozen=True, kw_only=True):
    """Lost GPU-hours of a plan."""

    predicted: Annotated[float, field_doc("GPU-hours that the whole plan was expected to lose when it started.")] = 0.0
    actual: Annotated[float, field_doc("GPU-hours that the plan has lost so far.")] = 0.0


class PlanCounts(Resource, frozen=True, kw_only=True):
    nodes: Annotated[int, field_doc("Number of nodes that the plan upgrades.")] = 0
    succeeded: Annotated[int, field_doc("Number of nodes that were released on the target revision.")] = 0
    failed: Annotated[int, field_doc("Number of nodes whose upgrade failed.")] = 0
    interruptions: Annotated[int, field_doc("Number of gangs that the plan has stopped.")] = 0
    restored: Annotated[int, field_doc("Number of gangs that were observed past their acknowledged step.")] = 0


class Failure(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, field_doc("Name of the node or gang.")]
    reason: Annotated[str, field_doc("Machine-readable reason.")]
    message: Annotated[str, field_doc("Human-readable message with the cause and a resolution.")]


class UpgradePlanStatus(Resource, frozen=True, kw_only=True):
    """Observed state of a rollout, and its blockers."""

    observed_generation: Annotated[
        int | None, field_doc("Generation of the spec for which this status was computed.")
    ] = None
    phase: Annotated[PlanPhase, field_doc("Phase of the plan.")] = PlanPhase.PROPOSED
    reason: Annotated[str, field_doc("Machine-readable reason for the phase.")] = ""
    message: Annotated[str, field_doc("Human-readable message with the state of the plan and what it waits for.")] = ""
    changed: Annotated[
        str, field_doc("Differences between the latest forecast and the previous one, and the time of the change.")
    ] = ""
    soak_until: Annotated[Timestamp | None, field_doc("Time at which the soak of the canaries ends.")] = None
    reserved_nodes: Annotated[
        list[str],
        field_doc(
            "Nodes that are reserved for the plan until their jobs have ended. A taint with the effect "
            "PreferNoSchedule keeps new pods off these nodes if other nodes are free."
        ),
    ] = []
    lost_gpu_hours: Annotated[Loss, field_doc("Predicted and actual lost GPU-hours.")] = Loss()
    stack_revision: Annotated[str | None, field_doc("Update revision of the stack at the start of the plan.")] = None
    revisions_left: Annotated[list[str], field_doc("Revisions of nodes on which restarted gangs must not run.")] = []
    started_at: Annotated[Timestamp | None, field_doc("Time at which the plan started.")] = None
    ended_at: Annotated[Timestamp | None, field_doc("Time at which the plan ended.")] = None
    forecast: Annotated[ForecastSummary, field_doc("Forecast of the rest of the plan.")] = ForecastSummary()
    batches: Annotated[
        list[BatchStatus],
        field_doc("The current batch and the last batch that ended. Future batches are not stored."),
    ] = []
    ended: Annotated[EndedBatches, field_doc("Totals of all batches that have ended.")] = EndedBatches()
    counts: Annotated[PlanCounts, field_doc("Counters of the rollout.")] = PlanCounts()
    stopped_owners: Annotated[
        list[str],
        field_doc(
            "UIDs of the owners of gangs that the plan has stopped. The plan does not stop them again, even if "
            "their CheckpointRequests are deleted."
        ),
    ] = []
    blockers: Annotated[list[BlockerStatus], field_doc("The ten most severe blockers.")] = []
    failures: Annotated[list[Failure], field_doc("Failures of nodes and gangs.")] = []
    ignored_requests: Annotated[
        list[str],
        Meta(
            description="CheckpointRequests, as NAMESPACE/NAME, that have the label of the plan but were not created "
            "by it. They are ignored. At most ten are listed.",
            max_length=10,
        ),
    ] = []
    conditions: Annotated[
        Conditions,
        field_doc(
            "Conditions of the plan. StepFailed: whether a part of the reconciliation fails. The message "
            "contains the error. The other parts continue."
        ),
    ] = []
    rollback_plan: Annotated[str | None, field_doc("Name of the UpgradePlan that rolls this plan back.")] = None


class UpgradePlan(Resource, frozen=True, kw_only=True):
    """UpgradePlan is the rollout of a revision of a GpuStack, with its pace, approval and progress."""

    metadata: ObjectMeta
    spec: UpgradePlanSpec
    status: UpgradePlanStatus = UpgradePlanStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "UpgradePlan"
