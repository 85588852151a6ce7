"""What one reading of the cluster found, as it came from the API server."""

from collections.abc import Mapping, Sequence

import msgspec

from upgrader.api.kubernetes import Namespace, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget
from upgrader.api.v1alpha1 import DriverImage, GpuStack, UpgradePlan
from upgrader.core.node_protocol.gpu_resources import Claimed
from upgrader.core.workloads.owner_objects import Work


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading of the world found, for all stacks alike."""

    own_namespace: str  # in which our own pods are
    nodes: Mapping[str, Node] = msgspec.field(default_factory=dict)
    pods: Sequence[Pod] = ()
    works: Sequence[Work] = ()  # owners of pods, and what owns those
    budgets: Sequence[PodDisruptionBudget] = ()
    images: Sequence[DriverImage] = ()
    namespaces: Sequence[Namespace] = ()
    plans: Sequence[UpgradePlan] = ()
    claims: Sequence[PersistentVolumeClaim] = ()
    stacks: Sequence[GpuStack] = ()
    api_server_version: str = ""
    method: str = ""  # how jobs are asked that do not say
    claimed: Claimed = msgspec.field(default_factory=dict)  # GPUs of ResourceClaims
    shaping: bool = False  # deploy/admission-steering.yaml is installed
