"""The custom resources as msgspec types, one file per kind. `make generate` writes crds/ from them.

The same types decode the objects that the API server returns. Every field has a description, which `kubectl explain`
shows. A field is added only together with the code that implements it.
"""

from upgrader.api.v1alpha1.checkpoint_request import (
    CheckpointRequest,
    CheckpointRequestSpec,
    CheckpointRequestStatus,
    Member,
    OwnerRef,
)
from upgrader.api.v1alpha1.driver_image import DriverImage, DriverImageSpec, DriverImageStatus
from upgrader.api.v1alpha1.gpu_stack import (
    DriftCount,
    DriftLimits,
    DriftPlanSpec,
    GangRule,
    GpuStack,
    GpuStackSpec,
    GpuStackStatus,
)
from upgrader.api.v1alpha1.node_specs import HostSpec, KubeletSpec, RebootSpec
from upgrader.api.v1alpha1.node_upgrade import (
    Force,
    NodeRef,
    NodeState,
    NodeUpgrade,
    NodeUpgradeSpec,
    NodeUpgradeStatus,
    PreviousNodeState,
    RebootState,
    StepStatus,
)
from upgrader.api.v1alpha1.operand_specs import DevicePluginSpec, DriverSpec
from upgrader.api.v1alpha1.plan_strategy import (
    Canary,
    CheckpointDefaults,
    Lanes,
    Strategy,
)
from upgrader.api.v1alpha1.upgrade_plan import (
    Approval,
    ApprovalLimits,
    BatchStatus,
    BlockerStatus,
    CanaryStatus,
    EndedBatches,
    Failure,
    ForecastSummary,
    GangShare,
    GroupStatus,
    Loss,
    PlanCounts,
    UpgradePlan,
    UpgradePlanSpec,
    UpgradePlanStatus,
)

__all__ = [
    "Approval",
    "ApprovalLimits",
    "BatchStatus",
    "BlockerStatus",
    "Canary",
    "CanaryStatus",
    "CheckpointDefaults",
    "CheckpointRequest",
    "CheckpointRequestSpec",
    "CheckpointRequestStatus",
    "DevicePluginSpec",
    "DriftCount",
    "DriftLimits",
    "DriftPlanSpec",
    "DriverImage",
    "DriverImageSpec",
    "DriverImageStatus",
    "DriverSpec",
    "EndedBatches",
    "Failure",
    "Force",
    "ForecastSummary",
    "GangRule",
    "GangShare",
    "GpuStack",
    "GpuStackSpec",
    "GpuStackStatus",
    "GroupStatus",
    "HostSpec",
    "KubeletSpec",
    "Lanes",
    "Loss",
    "Member",
    "NodeRef",
    "NodeState",
    "NodeUpgrade",
    "NodeUpgradeSpec",
    "NodeUpgradeStatus",
    "OwnerRef",
    "PlanCounts",
    "PreviousNodeState",
    "RebootSpec",
    "RebootState",
    "StepStatus",
    "Strategy",
    "UpgradePlan",
    "UpgradePlanSpec",
    "UpgradePlanStatus",
]
