"""UpgradePlan: how and when a revision is rolled out to its nodes, and the progress of the rollout."""

from typing import Annotated

from msgspec import Meta

from upgrader.api.fields import (
    Conditions,
    Resource,
    Text,
    Timestamp,
    described,
)
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1.plan_strategy import CheckpointDefaults, Strategy
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.phases import DesiredState, PlanPhase


class ApprovalLimits(Resource, frozen=True, kw_only=True):
    """Limits of the approval. If the forecast exceeds them, the plan is held until it is approved again."""

    max_interruptions: Annotated[int, Meta(description="Maximum number of gangs that may be stopped.", ge=0)]
    max_lost_gpu_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        described("Maximum number of GPU-hours that may be lost. If unset, there is no limit."),
    ] = None
    expendable: Annotated[
        list[Text],
        Meta(description="Names of gangs that may be ended without an acknowledgement.", max_length=256),
    ] = []
    placement_unguaranteed: Annotated[
        bool,
        described(
            "Whether gangs may be restarted although the cluster has no means to control the placement of"
            " their pods. Defaults to false."
        ),
    ] = False


class Approval(Resource, frozen=True, kw_only=True):
    by: Annotated[Text, described("Name of the approver.")]
    at: Annotated[Timestamp, described("Time of the approval.")]
    limits: Annotated[ApprovalLimits, described("Limits of the approval.")]


class UpgradePlanSpec(Resource, frozen=True, kw_only=True):
    """Desired rollout of a revision of a stack to its nodes."""

    stack: Annotated[Text, described("Name of the GpuStack that is rolled out. Immutable.")]
    target_revision: Annotated[
        Text, described("Name of the revision that is rolled out, stored as a ControllerRevision. Immutable.")
    ]
    strategy: Annotated[Strategy, described("Order and pace of the rollout.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, described("Defaults for jobs without checkpoint annotations.")] = (
        CheckpointDefaults()
    )
    approval: Annotated[
        Approval | None,
        described("Approval of the plan. Without an approval the plan does not change any node or job."),
    ] = None
    state: Annotated[
        DesiredState,
        described(
            "Desired state: Running, Paused (the current batch is completed), Aborted or RolledBack. "
            "Defaults to Running."
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


class Blocker(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, described("Name of the node, gang or upgrade group that is blocked.")]
    reason: Annotated[str, described("Machine-readable reason.")]
    message: Annotated[str, described("Human-readable message with the cause and a resolution.")]


class GangShare(Resource, frozen=True, kw_only=True):
    gpus: Annotated[int, described("Number of GPUs of all members of the gang.")] = 0
    since: Annotated[Timestamp | None, described("Start time of the member that started last.")] = None


class GroupStatus(Resource, frozen=True, kw_only=True):
    name: Annotated[str, described("Name of the upgrade group.")]
    nodes: Annotated[list[str], described("Nodes of the group.")]
    gangs: Annotated[list[str], described("Gangs of the group, which are stopped together.")] = []
    gpus: Annotated[
        int,
        described(
            "Number of GPUs that are out of service during the upgrade of the group, with all GPUs of its"
            " gangs counted."
        ),
    ] = 0
    expendable: Annotated[
        dict[str, list[str]],
        described("Expendable gangs that are not restarted, with the UIDs of their pods, which are evicted."),
    ] = {}
    shares: Annotated[
        dict[str, GangShare], described("Data from which the lost GPU-hours of each gang are computed.")
    ] = {}


class BatchStatus(Resource, frozen=True, kw_only=True):
    number: Annotated[int, described("Number of the batch, starting at 1.")]
    groups: Annotated[
        list[GroupStatus], described("Upgrade groups of the batch. Empty after the batch has ended.")
    ] = []
    node_count: Annotated[
        int, described("Number of nodes that were upgraded in the batch. Set after the batch has ended.")
    ] = 0
    gang_count: Annotated[
        int,
        described(
            "Number of gangs that were requested to write a checkpoint in the batch. Set after the batch has ended."
        ),
    ] = 0
    kind: Annotated[
        BatchKind,
        described(
            "Kind of the batch: Canary, Idle (no gang is stopped) or Asked (gangs are requested to write a checkpoint)."
        ),
    ] = BatchKind.ASKED
    started_at: Annotated[Timestamp, described("Time at which the batch started.")]
    ask_until: Annotated[
        Timestamp,
        described(
            "Time at which checkpoint requests end. Upgrade groups without all acknowledgements are "
            "removed from the batch."
        ),
    ]
    ended_at: Annotated[
        Timestamp | None, described("Time at which all node upgrades had ended and all gangs were restored.")
    ] = None
    classes: Annotated[
        dict[str, str],
        described("GPU model, kernel and driver of each node before the upgrade. Set for canaries only."),
    ] = {}


class CanaryStatus(Resource, frozen=True, kw_only=True):
    batch: Annotated[int, described("Number of the batch of the canary.")]
    node: Annotated[str, described("Name of the node.")]
    node_class: Annotated[str, described("GPU model, kernel and driver of the node before the upgrade.")]


class EndedBatches(Resource, frozen=True, kw_only=True):
    """Totals of the batches that have ended, so that the status does not grow with them."""

    count: Annotated[int, described("Number of batches that have ended.")] = 0
    lost_gpu_hours: Annotated[float, described("GPU-hours that were lost in them.")] = 0.0
    terminated: Annotated[int, described("Number of gangs that were ended in them and are not restarted.")] = 0
    canaries: Annotated[list[CanaryStatus], described("Canaries whose NodeUpgrade still exists.")] = []


class ForecastSummary(Resource, frozen=True, kw_only=True):
    batches: Annotated[int, described("Number of batches that have not started.")] = 0
    nodes: Annotated[int, described("Number of nodes that are not upgraded yet.")] = 0
    interruptions: Annotated[int, described("Number of gangs that are expected to be stopped.")] = 0
    blocked: Annotated[int, described("Number of blocked nodes.")] = 0
    waiting_for_completion: Annotated[int, described("Number of nodes that wait for completion of their jobs.")] = 0
    next_starts_at: Annotated[Timestamp | None, described("Time at which the next batch is expected to start.")] = None
    waits_for: Annotated[str, described("Human-readable message with what the next batch waits for.")] = ""
    lost_gpu_hours: Annotated[float, described("GPU-hours that the rest of the plan is expected to lose.")] = 0.0
    finish_p50: Annotated[Timestamp | None, described("Median of the expected end time.")] = None
    finish_p95: Annotated[Timestamp | None, described("95th percentile of the expected end time.")] = None


class Loss(Resource, frozen=True, kw_only=True):
    """Lost GPU-hours of a plan."""

    predicted: Annotated[float, described("GPU-hours that the whole plan was expected to lose when it started.")] = 0.0
    actual: Annotated[float, described("GPU-hours that the plan has lost so far.")] = 0.0


class PlanCounts(Resource, frozen=True, kw_only=True):
    nodes: Annotated[int, described("Number of nodes that the plan upgrades.")] = 0
    succeeded: Annotated[int, described("Number of nodes that were released on the target revision.")] = 0
    failed: Annotated[int, described("Number of nodes whose upgrade failed.")] = 0
    interruptions: Annotated[int, described("Number of gangs that the plan has stopped.")] = 0
    restored: Annotated[int, described("Number of gangs that were observed past their acknowledged step.")] = 0


class Failure(Resource, frozen=True, kw_only=True):
    subject: Annotated[str, described("Name of the node or gang.")]
    reason: Annotated[str, described("Machine-readable reason.")]
    message: Annotated[str, described("Human-readable message with the cause and a resolution.")]


class UpgradePlanStatus(Resource, frozen=True, kw_only=True):
    """Observed state of a rollout, and its blockers."""

    observed_generation: Annotated[
        int | None, described("Generation of the spec for which this status was computed.")
    ] = None
    phase: Annotated[PlanPhase, described("Phase of the plan.")] = PlanPhase.PROPOSED
    reason: Annotated[str, described("Machine-readable reason for the phase.")] = ""
    message: Annotated[str, described("Human-readable message with the state of the plan and what it waits for.")] = ""
    changed: Annotated[
        str, described("Differences between the latest forecast and the previous one, and the time of the change.")
    ] = ""
    soak_until: Annotated[Timestamp | None, described("Time at which the soak of the canaries ends.")] = None
    reserved_nodes: Annotated[
        list[str],
        described(
            "Nodes that are reserved for the plan until their jobs end. No other job with GPUs is scheduled there."
        ),
    ] = []
    lost_gpu_hours: Annotated[Loss, described("Predicted and actual lost GPU-hours.")] = Loss()
    stack_revision: Annotated[str | None, described("Update revision of the stack at the start of the plan.")] = None
    revisions_left: Annotated[list[str], described("Revisions of nodes on which restarted gangs must not run.")] = []
    started_at: Annotated[Timestamp | None, described("Time at which the plan started.")] = None
    ended_at: Annotated[Timestamp | None, described("Time at which the plan ended.")] = None
    forecast: Annotated[ForecastSummary, described("Forecast of the rest of the plan.")] = ForecastSummary()
    batches: Annotated[
        list[BatchStatus],
        described("The current batch and the last batch that ended. Future batches are not stored."),
    ] = []
    ended: Annotated[EndedBatches, described("Totals of all batches that have ended.")] = EndedBatches()
    counts: Annotated[PlanCounts, described("Counters of the rollout.")] = PlanCounts()
    stopped_owners: Annotated[
        list[str],
        described(
            "UIDs of the owners of gangs that the plan has stopped. It does not stop them again, even if "
            "their CheckpointRequests are deleted."
        ),
    ] = []
    blockers: Annotated[list[Blocker], described("The ten most severe blockers.")] = []
    failures: Annotated[list[Failure], described("Failures of nodes and gangs.")] = []
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
        described(
            "Conditions of the plan. StepFailed: whether a part of the reconciliation fails, with the "
            "error; the other parts continue."
        ),
    ] = []
    rollback_plan: Annotated[str | None, described("Name of the UpgradePlan that rolls this plan back.")] = None


class UpgradePlan(Resource, frozen=True, kw_only=True):
    """UpgradePlan is the rollout of a revision of a GpuStack: its pace, its windows, its approval and its
    progress.
    """

    metadata: ObjectMeta
    spec: UpgradePlanSpec
    status: UpgradePlanStatus = UpgradePlanStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "UpgradePlan"
