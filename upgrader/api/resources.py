"""The API path of each kind, and the type into which its objects are decoded."""

from typing import Generic, TypeVar

from msgspec import Struct

from upgrader.api import kubernetes as k
from upgrader.api import v1alpha1 as v
from upgrader.api.names import GROUP, VERSION
from upgrader.core.workloads.owner_kinds import ReadKind

T_co = TypeVar("T_co", covariant=True)

ADMISSION = "admissionregistration.k8s.io"


class ResourceKind(Struct, Generic[T_co], frozen=True, kw_only=True):
    """A kind of the API server; `path()` returns the URL path of an object or of the collection."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T_co]
    metadata_only: bool = False
    """Objects are read without spec and status."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """URL path; an empty namespace of a namespaced kind means all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (f"{root}{scope}", self.plural, name, subresource) if part)


def _define_kind(
    group: str, version: str, kind: str, type_: type[T_co], *, plural: str = "", namespaced: bool = True
) -> ResourceKind[T_co]:
    return ResourceKind(
        group=group, version=version, kind=kind, plural=plural or f"{kind.lower()}s", namespaced=namespaced, type=type_
    )


def owner_resource(kind: ReadKind, version: str = "") -> ResourceKind[k.OwnerObject]:
    """The resource of a kind of owners; `version` is the served version, if it differs from that in the table."""
    return ResourceKind(
        group=kind.group,
        version=version or kind.version,
        kind=kind.kind,
        plural=kind.plural,
        namespaced=True,
        type=k.OwnerObject,
        metadata_only=kind.metadata_only,
    )


NODES = _define_kind("", "v1", "Node", k.Node, namespaced=False)
PODS = _define_kind("", "v1", "Pod", k.Pod)
NAMESPACES = _define_kind("", "v1", "Namespace", k.Namespace, namespaced=False)
EVENTS = _define_kind("", "v1", "Event", k.Event)
JOBS = _define_kind("batch", "v1", "Job", k.Job)
DAEMONSETS = _define_kind("apps", "v1", "DaemonSet", k.DaemonSet)
CONTROLLER_REVISIONS = _define_kind("apps", "v1", "ControllerRevision", k.ControllerRevision)
PDBS = _define_kind("policy", "v1", "PodDisruptionBudget", k.PodDisruptionBudget)
CLAIMS = _define_kind("", "v1", "PersistentVolumeClaim", k.PersistentVolumeClaim)
COMMANDS = _define_kind("bus.volcano.sh", "v1alpha1", "Command", k.Unread)
SERVICES = _define_kind("", "v1", "Service", k.Unread)
SERVICE_MONITORS = _define_kind("monitoring.coreos.com", "v1", "ServiceMonitor", k.Unread)
NODE_FEATURES = _define_kind("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", k.Unread)
POLICIES = _define_kind(
    ADMISSION, "v1", "MutatingAdmissionPolicy", k.Unread, plural="mutatingadmissionpolicies", namespaced=False
)
POLICY_BINDINGS = _define_kind(
    ADMISSION, "v1", "MutatingAdmissionPolicyBinding", k.AdmissionPolicyBinding, namespaced=False
)
VALIDATING_POLICIES = _define_kind(
    ADMISSION, "v1", "ValidatingAdmissionPolicy", k.Unread, plural="validatingadmissionpolicies", namespaced=False
)
VALIDATING_POLICY_BINDINGS = _define_kind(
    ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", k.AdmissionPolicyBinding, namespaced=False
)
GPU_STACKS = _define_kind(GROUP, VERSION, "GpuStack", v.GpuStack, namespaced=False)
UPGRADE_PLANS = _define_kind(GROUP, VERSION, "UpgradePlan", v.UpgradePlan, namespaced=False)
NODE_UPGRADES = _define_kind(GROUP, VERSION, "NodeUpgrade", v.NodeUpgrade, namespaced=False)
CHECKPOINT_REQUESTS = _define_kind(GROUP, VERSION, "CheckpointRequest", v.CheckpointRequest)
DRIVER_IMAGES = _define_kind(GROUP, VERSION, "DriverImage", v.DriverImage, namespaced=False)
