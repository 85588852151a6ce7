"""The pods of the node, read from the API server with the credentials of its kubelet."""

from urllib.parse import quote

import msgspec
from msgspec import Struct

from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.kubelet.credentials import read_access
from upgrader.node.kubelet.readiness import get_body

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the mirror pod of a static pod; its value is the UID of the static pod in control groups."""


class _Owner(Struct, frozen=True, kw_only=True):
    kind: str
    controller: bool = False


class _Metadata(Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    name: str
    namespace: str
    annotations: dict[str, str] = {}
    owner_references: tuple[_Owner, ...] = ()


class _Resources(Struct, frozen=True, kw_only=True):
    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class _Container(Struct, frozen=True, kw_only=True):
    resources: _Resources = _Resources()


class _Spec(Struct, frozen=True, kw_only=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resource_claims: tuple[msgspec.Raw, ...] = ()


class _Pod(Struct, frozen=True, kw_only=True):
    metadata: _Metadata
    spec: _Spec


class _PodList(Struct, frozen=True, kw_only=True):
    items: tuple[_Pod, ...]


class NodePod(Struct, frozen=True, kw_only=True):
    """A pod. `resources` are all names that its containers request; `owner` is the kind of its controller.

    `claims`: it has ResourceClaims, which may be for GPUs.
    """

    namespace: str
    name: str
    resources: frozenset[str] = frozenset()
    claims: bool = False
    owner: str = ""
    static: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_node_pods(host: Host, kubelet: RunningKubelet, node: str) -> dict[str, NodePod]:
    """The pods of a node, by their UID in the names of control groups.

    Raises:
        OrderFailedError: the kubeconfig of the kubelet cannot be used.
        OSError: the request failed, or the response is not a list of pods.
    """
    selector = quote(f"spec.nodeName={node}", safe="")
    body = get_body(read_access(host, kubelet.option("kubeconfig")), f"/api/v1/pods?fieldSelector={selector}")
    try:
        pods = msgspec.json.decode(body, type=_PodList).items
    except msgspec.DecodeError as error:
        raise OSError(f"the response of the API server is not a list of pods: {error}") from error
    return {pod.metadata.annotations.get(MIRROR, pod.metadata.uid): _describe_pod(pod) for pod in pods}


def _describe_pod(pod: _Pod) -> NodePod:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    owner = next((owner.kind for owner in pod.metadata.owner_references if owner.controller), "")
    return NodePod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        resources=frozenset(
            name for container in containers for name in (*container.resources.limits, *container.resources.requests)
        ),
        claims=bool(pod.spec.resource_claims),
        owner=owner,
        static=MIRROR in pod.metadata.annotations,
    )
