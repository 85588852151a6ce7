"""GpuStack: the software that runs on a pool of GPU nodes."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.kubernetes import Conditions, ObjectMeta
from upgrader.api.v1alpha1.guard_rails import GuardRailsSpec
from upgrader.api.v1alpha1.node_specs import HostSpec, KubeletSpec, RebootSpec, ValidationSpec
from upgrader.api.v1alpha1.operand_specs import DevicePluginSpec, DriverSpec, NondisruptiveOperandSpec, RuntimeSpec
from upgrader.api.v1alpha1.plan_strategy import CheckpointDefaults, Strategy
from upgrader.core.fields import (
    LabelKey,
    Resource,
    Text,
    field_doc,
    keyed_by,
)
from upgrader.core.gpu_stack.proposals import OnDrift
from upgrader.core.model.operands import Operand, OperandState
from upgrader.core.model.upgrade_limits import UpgradeLimits


class GangRule(Resource, frozen=True, kw_only=True):
    """Rule by which pods of one namespace form a gang. Exactly one of `label` and `regex` must be set."""

    label: Annotated[LabelKey | None, field_doc("Label key. Pods with the same value of this label form a gang.")] = (
        None
    )
    regex: Annotated[
        Text | None,
        field_doc(
            "Regular expression that must match the whole name of a pod. Pods with the same first "
            "capturing group form a gang; without a capturing group, all pods that match do."
        ),
    ] = None


class DriftLimits(Resource, frozen=True, kw_only=True):
    """Limits of automatic approvals. An automatic approval never makes a gang expendable; only a user can do so, for
    one plan.
    """

    max_interruptions: Annotated[int, Meta(description="Maximum number of gangs that a plan may stop.", ge=0)]
    max_lost_gpu_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        field_doc("Maximum number of GPU-hours that a plan may lose. If unset, there is no limit."),
    ] = None
    placement_unguaranteed: Annotated[
        bool,
        field_doc(
            "Whether gangs may be stopped even if the cluster has no means to place their restarted pods "
            "on upgraded nodes. Defaults to false."
        ),
    ] = False


class DriftPlanSpec(Resource, frozen=True, kw_only=True):
    """Template of the plans that the stack creates automatically."""

    strategy: Annotated[Strategy, field_doc("Order and pace of the rollout.")] = Strategy()
    checkpoint: Annotated[CheckpointDefaults, field_doc("Defaults for jobs without checkpoint annotations.")] = (
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
        DriftLimits | None,
        field_doc("Limits within which plans are approved automatically. If unset, no plan is approved automatically."),
    ] = None


class GpuStackSpec(Resource, frozen=True, kw_only=True):
    """Desired software of the nodes of one pool. UpgradePlans define how and when it is rolled out."""

    node_selector: Annotated[
        dict[str, str], Meta(description="Labels that a node must have to belong to the pool.", min_length=1)
    ]
    driver: Annotated[DriverSpec, field_doc("Driver of the nodes of the pool.")]
    device_plugin: Annotated[DevicePluginSpec, field_doc("Device plugin of the nodes of the pool.")]
    runtime: Annotated[RuntimeSpec, field_doc("Runtime hook of the nodes of the pool.")] = RuntimeSpec()
    kubelet: Annotated[KubeletSpec, field_doc("Kubelet of the nodes of the pool.")] = KubeletSpec()
    feature_discovery: Annotated[
        NondisruptiveOperandSpec,
        field_doc("GPU feature discovery, which labels nodes with the model, memory and driver of their GPUs."),
    ] = NondisruptiveOperandSpec()
    monitoring: Annotated[NondisruptiveOperandSpec, field_doc("Exporter of GPU metrics.")] = NondisruptiveOperandSpec()
    validation: Annotated[ValidationSpec, field_doc("Validation of a node before its release.")] = ValidationSpec()
    reboot: Annotated[
        RebootSpec | None,
        field_doc(
            "Reboot of a node into another kernel as a part of its upgrade. The kernel must be installed "
            "on the node. If unset, upgrades do not reboot nodes."
        ),
    ] = None
    host: Annotated[
        HostSpec,
        field_doc(
            "Programs of the nodes that an upgrade stops. A NodeUpgrade records them when it is created: a change is "
            "no drift."
        ),
    ] = HostSpec()
    limits: Annotated[
        UpgradeLimits,
        field_doc(
            "Maximum durations of the phases of node upgrades. A NodeUpgrade records them when it is created: a change "
            "does not affect upgrades that are in progress, and is no drift."
        ),
    ] = UpgradeLimits()
    guard_rails: Annotated[
        GuardRailsSpec,
        field_doc(
            "Manifests that reserve the pool for its jobs. `upgrader guard-rails` prints them; the "
            "controller does not apply them."
        ),
    ] = GuardRailsSpec()
    node_features: Annotated[
        Literal["Auto", "External"],
        field_doc(
            "Management of the labels of node-feature-discovery on the nodes of the pool. `External`: the"
            " controller does not manage them. `Auto`: the controller sets them on nodes where "
            "node-feature-discovery does not run. Defaults to `External`."
        ),
    ] = "External"
    on_drift: Annotated[
        OnDrift,
        field_doc(
            "Action to take on drift of nodes that are in use. `Report`: the status reports the drift. "
            "`Propose`: the controller also creates an UpgradePlan, which waits for approval. `Approve`: "
            "the controller also approves the plan, within driftPlan.limits. Defaults to `Report`."
        ),
    ] = OnDrift.REPORT
    drift_plan: Annotated[
        DriftPlanSpec | None,
        field_doc(
            "Pace and approval limits of the plans that `onDrift` creates. If unset, these plans have "
            "the defaults of an UpgradePlan and wait for approval."
        ),
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

    @property
    def reboots_after_failed_unload(self) -> bool:
        """Whether a plan's upgrade reboots a node whose driver cannot be unloaded."""
        return self.driver.on_unload_failure == "Reboot" and self.reboot is not None


class DriftCount(Resource, frozen=True, kw_only=True):
    reason: Annotated[str, field_doc("Reason why the nodes differ from the stack.")]
    nodes: Annotated[int, field_doc("Number of nodes that differ for this reason.")]
    names: Annotated[list[str], field_doc("Names of the first ten of these nodes.")] = []


class OperandStatus(Resource, frozen=True, kw_only=True):
    """Observed state of one operand on the nodes of the pool."""

    operand: Annotated[
        Operand, field_doc("Name of the operand. Operands start on each node in the order of this list.")
    ]
    state: Annotated[
        OperandState, field_doc("State: Ready, Waiting, None (no node requires the operand yet) or External.")
    ]
    shown: Annotated[
        str, field_doc("Value for `kubectl get`: READY/WANTED, for example `3/4`, or `state` if no node requires it.")
    ]
    ready: Annotated[int, field_doc("Number of nodes on which it is ready.")] = 0
    wanted: Annotated[int, field_doc("Number of nodes that require it.")] = 0
    blocked: Annotated[int, field_doc("Number of nodes on which it waits for an earlier operand.")] = 0
    message: Annotated[str, field_doc("First nodes on which it is not ready, with the reasons.")] = ""


class PartStatus(Resource, frozen=True, kw_only=True):
    """Observed state of software on the nodes of the pool that is not an operand. No operand waits for it."""

    # No field has a default, so that all are always written: a merge patch keeps the fields that it does not contain.
    state: Annotated[OperandState, field_doc("State: Ready, Waiting, None (no node requires it) or External.")]
    shown: Annotated[
        str, field_doc("Value for `kubectl get`: READY/WANTED, for example `3/4`, or `state` if no node requires it.")
    ]
    ready: Annotated[int, field_doc("Number of nodes on which it is ready.")]
    wanted: Annotated[int, field_doc("Number of nodes that require it.")]
    message: Annotated[str, field_doc("First nodes on which it is not ready, with the reasons.")]


class GpuStackStatus(Resource, frozen=True, kw_only=True):
    """Observed state of the pool, compared with its stack."""

    observed_generation: Annotated[
        int | None, field_doc("Generation of the spec for which this status was computed.")
    ] = None
    current_revision: Annotated[str | None, field_doc("Most recent revision that all nodes ran.")] = None
    update_revision: Annotated[str | None, field_doc("Revision of the current spec.")] = None
    blocked_revision: Annotated[
        str | None,
        field_doc(
            "Update revision, if a plan was rolled back from it. The controller creates no plan for this "
            "revision: correct the spec."
        ),
    ] = None
    active_plan: Annotated[
        str | None, field_doc("Name of the running UpgradePlan of this stack. A stack has at most one.")
    ] = None
    nodes: Annotated[int, field_doc("Number of nodes that the selector matches.")] = 0
    ready: Annotated[int, field_doc("Number of nodes that run the update revision and are in service.")] = 0
    drifted: Annotated[int, field_doc("Number of nodes with drift.")] = 0
    drift: Annotated[list[DriftCount], field_doc("Number of nodes with drift, by reason.")] = []
    operands: Annotated[
        list[OperandStatus],
        Meta(
            description="State of the operands, in the order in which they start on a node.",
            extra_json_schema=keyed_by("operand"),
        ),
    ] = []
    node_features: Annotated[
        PartStatus | None,
        field_doc(
            "State of the pods that set the labels of node-feature-discovery. Set only if `nodeFeatures` is Auto."
        ),
    ] = None
    conditions: Annotated[
        Conditions,
        field_doc(
            "Conditions of the stack: Valid, Drifted, Installed, OperandsReady; OnDrift if the stack "
            "creates plans; LabelsAgree, Adopted, NextBootSupported if a problem was found; NodeFeatures "
            "if `nodeFeatures` is Auto; Overlaps if another stack selects the same node; StoppedOwners "
            "if a job is stopped and its CheckpointRequest was deleted."
        ),
    ] = []


class GpuStack(Resource, frozen=True, kw_only=True):
    """GpuStack declares the software that runs on a pool of GPU nodes."""

    metadata: ObjectMeta
    spec: GpuStackSpec
    status: GpuStackStatus = GpuStackStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "GpuStack"
