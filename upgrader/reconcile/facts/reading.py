"""The objects of one reading of the cluster."""

from collections.abc import Mapping, Sequence

import msgspec

from upgrader.api.kubernetes import Namespace, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget
from upgrader.api.v1alpha1 import DriverImage, GpuStack, UpgradePlan
from upgrader.core.node_protocol.gpu_resources import Claimed
from upgrader.core.workloads.owner_objects import Work


class ClusterReading(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one reading of the cluster, for all stacks."""

    own_namespace: str  # namespace of the operator's own pods
    nodes: Mapping[str, Node] = msgspec.field(default_factory=dict)
    pods: Sequence[Pod] = ()
    works: Sequence[Work] = ()  # owners of pods, and their owners
    budgets: Sequence[PodDisruptionBudget] = ()
    images: Sequence[DriverImage] = ()
    namespaces: Sequence[Namespace] = ()
    plans: Sequence[UpgradePlan] = ()
    claims: Sequence[PersistentVolumeClaim] = ()
    stacks: Sequence[GpuStack] = ()
    api_server_version: str = ""
    method: str = ""  # checkpoint method of jobs that declare none
    claimed: Claimed = msgspec.field(default_factory=dict)  # GPUs of ResourceClaims
    shaping: bool = False  # deploy/admission-steering.yaml is installed
