"""Our kinds as msgspec types, one file for each: `make generate` turns them into crds/.

The same types decode what the API server sends. Every field has a description, since `kubectl explain` is where people
read first. No field ships before it works.
"""

from upgrader.api.v1alpha1.checkpoint_request import (
    Ack,
    CheckpointRequest,
    CheckpointRequestSpec,
    CheckpointRequestStatus,
    Member,
    OwnerRef,
)
from upgrader.api.v1alpha1.driver_image import DriverImage, DriverImageSpec, DriverImageStatus
from upgrader.api.v1alpha1.gpu_stack import (
    DevicePluginSpec,
    DriftCount,
    DriverSpec,
    GpuStack,
    GpuStackSpec,
    GpuStackStatus,
    KubeletSpec,
)
from upgrader.api.v1alpha1.node_upgrade import (
    Found,
    NodeRef,
    NodeState,
    NodeUpgrade,
    NodeUpgradeSpec,
    NodeUpgradeStatus,
    StepStatus,
)
from upgrader.api.v1alpha1.upgrade_plan import (
    Approval,
    BatchStatus,
    CheckpointDefaults,
    ClosureStatus,
    Envelope,
    Failure,
    ForecastSummary,
    Hold,
    PlanCounts,
    Strategy,
    UpgradePlan,
    UpgradePlanSpec,
    UpgradePlanStatus,
)

__all__ = [
    "Ack",
    "Approval",
    "BatchStatus",
    "CheckpointDefaults",
    "CheckpointRequest",
    "CheckpointRequestSpec",
    "CheckpointRequestStatus",
    "ClosureStatus",
    "DevicePluginSpec",
    "DriftCount",
    "DriverImage",
    "DriverImageSpec",
    "DriverImageStatus",
    "DriverSpec",
    "Envelope",
    "Failure",
    "ForecastSummary",
    "Found",
    "GpuStack",
    "GpuStackSpec",
    "GpuStackStatus",
    "Hold",
    "KubeletSpec",
    "Member",
    "NodeRef",
    "NodeState",
    "NodeUpgrade",
    "NodeUpgradeSpec",
    "NodeUpgradeStatus",
    "OwnerRef",
    "PlanCounts",
    "StepStatus",
    "Strategy",
    "UpgradePlan",
    "UpgradePlanSpec",
    "UpgradePlanStatus",
]
