"""GpuStack: the software that runs on a pool of GPU nodes."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.fields import (
    Conditions,
    LabelKey,
    Resource,
    Text,
    described,
    keyed_by,
)
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1.guard_rails import GuardRailsSpec
from upgrader.api.v1alpha1.node_specs import KubeletSpec, RebootSpec, ValidationSpec
from upgrader.api.v1alpha1.operand_specs import DevicePluginSpec, DriverSpec, QuietOperandSpec, RuntimeSpec
from upgrader.api.v1alpha1.plan_strategy import CheckpointDefaults, Strategy
from upgrader.core.gpu_stack.proposals import OnDrift
from upgrader.core.model.operands import Operand, Standing


class GangRule(Resource, frozen=True, kw_only=True):
    """Rule by which pods of one namespace form a gang. Exactly one of `label` and `regex` must be set."""

    label: Annotated[LabelKey | None, described("Label key. Pods with the same value form a gang.")] = None
    regex: Annotated[
        Text | None,
        described(
            "Regular expression that must match the whole name of a pod. Pods with the same first "
            "capturing group form a gang; without a capturing group, all pods that match do."
        ),
    ] = None


class DriftLimits(Resource, frozen=True, kw_only=True):
    """Limits of the approval that a stack gives automatically. It never makes a gang expendable; only a user can,
    for one plan.
    """

    max_interruptions: Annotated[int, Meta(description="Maximum number of gangs that a plan may stop.", ge=0)]
    max_lost_gpu_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        described("Maximum number of GPU-hours that a plan may lose. If unset, there is no limit."),
    ] = None
    placement_unguaranteed: Annotated[
        bool,
        described(
            "Whether gangs may be restarted although the cluster has no means to control the placement of"
            " their pods. Defaults to false."
        ),
    ] = False


class DriftPlanSpec(Resource, frozen=True, kw_only=True):
    """Template of the plans that the stack creates automatically."""

    strategy: Annotated[Strategy, described("Order and pace of the rollout.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, described("Defaults for jobs without checkpoint annotations.")] = (
        CheckpointDefaults()
    )
    tolerated_failures: Annotated[
        int,
        Meta(
            description="Maximum number of failed nodes and gangs. When more have failed, the action of "
            "strategy.onFailure is taken. Defaults to 0.",
            ge=0,
        ),
    ] = 0
    limits: Annotated[
        DriftLimits | None, described("Limits within which the stack approves plans. If unset, it approves none.")
    ] = None


class GpuStackSpec(Resource, frozen=True, kw_only=True):
    """Desired software of the nodes of one pool. An UpgradePlan states how and when it is rolled out."""

    node_selector: Annotated[
        dict[str, str], Meta(description="Labels that select the nodes of the pool.", min_length=1)
    ]
    driver: Annotated[DriverSpec, described("Driver of the pool.")]
    device_plugin: Annotated[DevicePluginSpec, described("Device plugin of the pool.")]
    runtime: Annotated[RuntimeSpec, described("Runtime hook of the pool.")] = RuntimeSpec()
    kubelet: Annotated[KubeletSpec, described("Kubelet of the pool.")] = KubeletSpec()
    feature_discovery: Annotated[
        QuietOperandSpec,
        described("GPU feature discovery, which labels nodes with the model, memory and driver of their GPUs."),
    ] = QuietOperandSpec()
    monitoring: Annotated[QuietOperandSpec, described("Exporter of GPU metrics.")] = QuietOperandSpec()
    validation: Annotated[ValidationSpec, described("Validation of a node before its release.")] = ValidationSpec()
    reboot: Annotated[
        RebootSpec | None,
        described(
            "Reboot of nodes, in their upgrades, into a kernel that is installed on them. If unset, nodes"
            " are never rebooted."
        ),
    ] = None
    guard_rails: Annotated[
        GuardRailsSpec,
        described(
            "Manifests that reserve the pool for its jobs. `upgrader guard-rails` prints them; the "
            "controller does not apply them."
        ),
    ] = GuardRailsSpec()
    node_features: Annotated[
        Literal["Auto", "External"],
        described(
            "Management of the labels of node-feature-discovery on the nodes of the pool. `External`: the"
            " controller does not manage them. `Auto`: the controller sets them on nodes where "
            "node-feature-discovery does not run. Defaults to `External`."
        ),
    ] = "External"
    on_drift: Annotated[
        OnDrift,
        described(
            "Action to take for nodes that are in use and differ from the stack. `Report`: the drift is "
            "shown in the status. `Propose`: an UpgradePlan is created that waits for approval. "
            "`Approve`: the plan is also approved, within driftPlan.limits. Defaults to `Report`."
        ),
    ] = OnDrift.REPORT
    drift_plan: Annotated[
        DriftPlanSpec | None, described("Pace and approval limits of the plans that `onDrift` creates.")
    ] = None
    history_limit: Annotated[
        int,
        Meta(
            description="Number of ended UpgradePlans of the stack to keep, with the revisions that they rolled out. "
            "Defaults to 10.",
            ge=1,
            le=1000,
        ),
    ] = 10
    gangs: Annotated[
        list[GangRule],
        Meta(
            description="Rules by which pods form gangs. They take precedence over automatic detection; the first "
            "rule that matches applies.",
            max_length=16,
        ),
    ] = []


class DriftCount(Resource, frozen=True, kw_only=True):
    reason: Annotated[str, described("Reason why the nodes differ from the stack.")]
    nodes: Annotated[int, described("Number of nodes that differ for this reason.")]
    names: Annotated[list[str], described("Names of the first ten of these nodes.")] = []


class OperandStatus(Resource, frozen=True, kw_only=True):
    """Observed state of one operand on the nodes of the pool."""

    operand: Annotated[
        Operand, described("Name of the operand. Operands start on each node in the order of this list.")
    ]
    state: Annotated[Standing, described("State: Ready, Waiting, None (no node requires the operand yet) or External.")]
    shown: Annotated[
        str, described("Short form for `kubectl get`: number of ready nodes of the nodes that require it, or one word.")
    ]
    ready: Annotated[int, described("Number of nodes on which it is ready.")] = 0
    wanted: Annotated[int, described("Number of nodes that require it.")] = 0
    blocked: Annotated[int, described("Number of nodes on which it waits for an earlier operand.")] = 0
    message: Annotated[str, described("First nodes on which it is not ready, with the reasons.")] = ""


class PartStatus(Resource, frozen=True, kw_only=True):
    """Observed state of software on the nodes of the pool that is not an operand. No operand waits for it."""

    # No field has a default, so that all are always written: a merge patch keeps the fields that it does not contain.
    state: Annotated[Standing, described("State: Ready, Waiting, None (no node requires it) or External.")]
    shown: Annotated[
        str, described("Short form for `kubectl get`: number of ready nodes of the nodes that require it, or one word.")
    ]
    ready: Annotated[int, described("Number of nodes on which it is ready.")]
    wanted: Annotated[int, described("Number of nodes that require it.")]
    message: Annotated[str, described("First nodes on which it is not ready, with the reasons.")]


class GpuStackStatus(Resource, frozen=True, kw_only=True):
    """Observed state of the pool, compared with its stack."""

    observed_generation: Annotated[
        int | None, described("Generation of the spec for which this status was computed.")
    ] = None
    current_revision: Annotated[str | None, described("Most recent revision that all nodes ran.")] = None
    update_revision: Annotated[str | None, described("Revision of the current spec.")] = None
    blocked_revision: Annotated[
        str | None,
        described(
            "Update revision, if a plan was rolled back from it. The spec must be corrected before another rollout."
        ),
    ] = None
    active_plan: Annotated[
        str | None, described("Name of the running UpgradePlan of this stack. A stack has at most one.")
    ] = None
    nodes: Annotated[int, described("Number of nodes that the selector matches.")] = 0
    ready: Annotated[int, described("Number of nodes that run the update revision and are in service.")] = 0
    drifted: Annotated[int, described("Number of nodes with drift.")] = 0
    drift: Annotated[list[DriftCount], described("Number of nodes with drift, by reason.")] = []
    operands: Annotated[
        list[OperandStatus],
        Meta(
            description="State of the operands, in the order in which they start on a node.",
            extra_json_schema=keyed_by("operand"),
        ),
    ] = []
    node_features: Annotated[
        PartStatus | None,
        described("State of the pods that detect the features of their nodes, if `nodeFeatures` is Auto."),
    ] = None
    conditions: Annotated[
        Conditions,
        described(
            "Conditions of the stack: Valid, Drifted, Installed, OperandsReady; OnDrift if the stack "
            "creates plans; LabelsAgree, Adopted, NextBootSupported if a problem was found; NodeFeatures "
            "if `nodeFeatures` is Auto; Overlaps if two stacks select the same node."
        ),
    ] = []


class GpuStack(Resource, frozen=True, kw_only=True):
    """GpuStack declares the software that runs on a pool of GPU nodes."""

    metadata: ObjectMeta
    spec: GpuStackSpec
    status: GpuStackStatus = GpuStackStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "GpuStack"
