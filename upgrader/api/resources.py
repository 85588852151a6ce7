"""Where each kind lives on the API server and into which type its bodies are decoded."""

from typing import Generic, TypeVar

from msgspec import Struct

from upgrader.api import kubernetes as k
from upgrader.api import v1alpha1 as v
from upgrader.api.names import GROUP, VERSION
from upgrader.core.workloads.owner_kinds import ReadKind

T_co = TypeVar("T_co", covariant=True)

ADMISSION = "admissionregistration.k8s.io"


class ResourceKind(Struct, Generic[T_co], frozen=True, kw_only=True):
    """A kind on the API server; `path()` gives the URL path of an object, or of the collection."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T_co]
    metadata_only: bool = False
    """Objects are asked for without spec and status."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """URL path; an empty namespace of a namespaced kind means all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (f"{root}{scope}", self.plural, name, subresource) if part)


def _kind(
    group: str, version: str, kind: str, type_: type[T_co], *, plural: str = "", namespaced: bool = True
) -> ResourceKind[T_co]:
    return ResourceKind(
        group=group, version=version, kind=kind, plural=plural or f"{kind.lower()}s", namespaced=namespaced, type=type_
    )


def owner_resource(kind: ReadKind, version: str = "") -> ResourceKind[k.OwnerObject]:
    """Where owners of a kind live; `version` is the served one, where that is another than the table names."""
    return ResourceKind(
        group=kind.group,
        version=version or kind.version,
        kind=kind.kind,
        plural=kind.plural,
        namespaced=True,
        type=k.OwnerObject,
        metadata_only=kind.metadata_only,
    )


NODES = _kind("", "v1", "Node", k.Node, namespaced=False)
PODS = _kind("", "v1", "Pod", k.Pod)
NAMESPACES = _kind("", "v1", "Namespace", k.Namespace, namespaced=False)
EVENTS = _kind("", "v1", "Event", k.Event)
JOBS = _kind("batch", "v1", "Job", k.Job)
DAEMONSETS = _kind("apps", "v1", "DaemonSet", k.DaemonSet)
CONTROLLER_REVISIONS = _kind("apps", "v1", "ControllerRevision", k.ControllerRevision)
PDBS = _kind("policy", "v1", "PodDisruptionBudget", k.PodDisruptionBudget)
CLAIMS = _kind("", "v1", "PersistentVolumeClaim", k.PersistentVolumeClaim)
COMMANDS = _kind("bus.volcano.sh", "v1alpha1", "Command", k.Unread)
SERVICES = _kind("", "v1", "Service", k.Unread)
SERVICE_MONITORS = _kind("monitoring.coreos.com", "v1", "ServiceMonitor", k.Unread)
NODE_FEATURES = _kind("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", k.Unread)
POLICIES = _kind(
    ADMISSION, "v1", "MutatingAdmissionPolicy", k.Unread, plural="mutatingadmissionpolicies", namespaced=False
)
POLICY_BINDINGS = _kind(ADMISSION, "v1", "MutatingAdmissionPolicyBinding", k.AdmissionPolicyBinding, namespaced=False)
VALIDATING_POLICIES = _kind(
    ADMISSION, "v1", "ValidatingAdmissionPolicy", k.Unread, plural="validatingadmissionpolicies", namespaced=False
)
VALIDATING_POLICY_BINDINGS = _kind(
    ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", k.AdmissionPolicyBinding, namespaced=False
)
GPU_STACKS = _kind(GROUP, VERSION, "GpuStack", v.GpuStack, namespaced=False)
UPGRADE_PLANS = _kind(GROUP, VERSION, "UpgradePlan", v.UpgradePlan, namespaced=False)
NODE_UPGRADES = _kind(GROUP, VERSION, "NodeUpgrade", v.NodeUpgrade, namespaced=False)
CHECKPOINT_REQUESTS = _kind(GROUP, VERSION, "CheckpointRequest", v.CheckpointRequest)
DRIVER_IMAGES = _kind(GROUP, VERSION, "DriverImage", v.DriverImage, namespaced=False)
