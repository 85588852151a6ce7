"""The programs of the cluster, their versions, and the Go module that pins each."""

from msgspec import Struct

CONTROL_PLANE = "1.36.3"
ETCD = "3.6.8"
"""The etcd version in the go.mod of this Kubernetes version."""
KWOK = "0.7.0"
REGISTRY = "3.1.2"
COSIGN = "3.1.3"
"""Signs and verifies driver images; the controller's image contains it too."""
CONTAINERD = "2.3.7"
"""In virtual nodes: the CRI of Debian 12's version 1.6 does not support CDI."""
CONTAINER_TOOLKIT = "1.20.1"
"""NVIDIA's generator of CDI specifications, for tests of driver images."""
KUBELETS = ("1.34.4", "1.35.4")
"""Kubelets that can be built; containerd 1.6 of Debian 12 supports kubelets up to 1.35."""

_KUBERNETES_VERSION = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class Tool(Struct, frozen=True, kw_only=True):
    """A program and the Go package that it is built from."""

    name: str
    package: str
    version: str
    version_output: str
    """A part of its version output, to recognize an installed program."""
    module: str
    """The folder in gomod/ whose go.mod has it as a tool."""
    ldflags: tuple[str, ...] = ("-s", "-w")
    version_argument: str = "--version"
    """The argument that prints the version."""
    cgo: bool = False
    """Whether it needs C: it is then linked to the C library of this machine."""


def _kubernetes_tool(name: str, version: str, module: str) -> Tool:
    # without these a kubelet reports v0.0.0-master, and version skew is meaningless
    minor = version.split(".")[1]
    version_fields = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    flags = [
        f"-X={package}.{field}={value}" for package in _KUBERNETES_VERSION for field, value in version_fields.items()
    ]
    return Tool(
        name=name,
        package=f"k8s.io/kubernetes/cmd/{name}",
        version=version,
        version_output=f"Kubernetes v{version}",
        module=module,
        ldflags=("-s", "-w", *flags),
    )


KUBE_APISERVER = _kubernetes_tool("kube-apiserver", CONTROL_PLANE, "control-plane")
KUBE_CONTROLLER_MANAGER = _kubernetes_tool("kube-controller-manager", CONTROL_PLANE, "control-plane")
KUBE_SCHEDULER = _kubernetes_tool("kube-scheduler", CONTROL_PLANE, "control-plane")
ETCD_SERVER = Tool(
    name="etcd",
    package="go.etcd.io/etcd/server/v3",
    version=ETCD,
    version_output=f"etcd Version: {ETCD}",
    module="control-plane",
)
KWOK_CONTROLLER = Tool(
    name="kwok", package="sigs.k8s.io/kwok/cmd/kwok", version=KWOK, version_output=f"v{KWOK}", module="kwok"
)
OCI_REGISTRY = Tool(
    name="registry",
    package="github.com/distribution/distribution/v3/cmd/registry",
    version=REGISTRY,
    version_output=f"v{REGISTRY}",
    module="registry",
    ldflags=("-s", "-w", f"-X=github.com/distribution/distribution/v3/version.version=v{REGISTRY}"),
)
COSIGN_TOOL = Tool(
    name="cosign",
    package="github.com/sigstore/cosign/v3/cmd/cosign",
    version=COSIGN,
    version_output=f"v{COSIGN}",
    module="cosign",
    version_argument="version",
)
NVIDIA_CTK = Tool(
    name="nvidia-ctk",
    package="github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk",
    version=CONTAINER_TOOLKIT,
    version_output=CONTAINER_TOOLKIT,
    module="container-toolkit",
    ldflags=(
        "-s",
        "-w",
        # the module's Makefile: symbols of libnvidia-ml.so are resolved when it is opened, not by the linker
        "-extldflags=-Wl,-z,lazy",
        f"-X=github.com/NVIDIA/nvidia-container-toolkit/internal/info.version={CONTAINER_TOOLKIT}",
    ),
    cgo=True,
)
CONTAINERD_TOOLS = tuple(
    Tool(
        name=name,
        package=f"github.com/containerd/containerd/v2/cmd/{name}",
        version=CONTAINERD,
        version_output=f"v{CONTAINERD}",
        module="containerd",
        ldflags=("-s", "-w", f"-X=github.com/containerd/containerd/v2/version.Version=v{CONTAINERD}"),
    )
    for name in ("containerd", "containerd-shim-runc-v2", "ctr")
)


def kubelet_tool(version: str) -> Tool:
    """The kubelet of a version of KUBELETS; ValueError for other versions."""
    if version not in KUBELETS:
        raise ValueError(f"no kubelet {version}; there are {', '.join(KUBELETS)}")
    return _kubernetes_tool("kubelet", version, f"kubelet-{version.rpartition('.')[0]}")


def all_tools() -> tuple[Tool, ...]:
    """All programs, the ones with fast builds first."""
    quick = (OCI_REGISTRY, KWOK_CONTROLLER, *CONTAINERD_TOOLS, ETCD_SERVER, COSIGN_TOOL)
    return (
        *quick,
        KUBE_SCHEDULER,
        KUBE_CONTROLLER_MANAGER,
        KUBE_APISERVER,
        *(kubelet_tool(version) for version in KUBELETS),
    )
