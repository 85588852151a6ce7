"""GpuStack.spec: kubelet, validation and reboot of the nodes of a pool."""

from typing import Annotated, Literal

from msgspec import Meta, field

from upgrader.api.fields import (
    CommandWords,
    ImageReference,
    KernelRelease,
    KubeletVersion,
    Resource,
    Text,
    described,
)

CpuList = Annotated[str, Meta(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$", max_length=253)]


class KubeletSettingsSpec(Resource, frozen=True, kw_only=True):
    """Fields of the kubelet configuration that place pods on CPUs. A field that is unset keeps the value of the
    node.
    """

    cpu_manager_policy: Annotated[
        Literal["none", "static"] | None,
        described(
            "CPU manager policy. `static`: containers of Guaranteed pods that request whole CPUs have "
            "exclusive use of them."
        ),
    ] = None
    reserved_cpus: Annotated[
        CpuList | None,
        described(
            "CPUs that are reserved for the system, for example `0-3,64-67`. No container has exclusive use of them."
        ),
    ] = None
    topology_manager_policy: Annotated[
        Literal["none", "best-effort", "restricted", "single-numa-node"] | None,
        described("Topology manager policy: how strictly the GPUs and CPUs of a pod are placed on the same NUMA node."),
    ] = None
    topology_manager_scope: Annotated[
        Literal["container", "pod"] | None,
        described("Topology manager scope: whether the policy applies to each container or to the whole pod."),
    ] = None

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """Fields that are set, by their names in KubeletConfiguration (kubelet.config.k8s.io/v1beta1)."""
        found = (
            ("cpuManagerPolicy", self.cpu_manager_policy),
            ("reservedSystemCPUs", self.reserved_cpus),
            ("topologyManagerPolicy", self.topology_manager_policy),
            ("topologyManagerScope", self.topology_manager_scope),
        )
        return tuple((name, value) for name, value in found if value is not None)


class KubeletSpec(Resource, frozen=True, kw_only=True):
    manage: Annotated[bool, described("Whether upgrades replace the kubelet. Defaults to false.")] = False
    version: Annotated[KubeletVersion | None, described("Kubelet version, for example 1.35.4.")] = None
    artifact: Annotated[
        ImageReference | None, described("Image that contains the kubelet binary. See docs/reference/node-contract.md.")
    ] = None
    binary: Annotated[
        str,
        Meta(
            description="Path of the kubelet binary on the node. Defaults to /usr/bin/kubelet.",
            pattern=r"^/[A-Za-z0-9._/-]+$",
            max_length=253,
        ),
    ] = "/usr/bin/kubelet"
    settings: Annotated[
        KubeletSettingsSpec,
        described(
            "Settings of the kubelet. They are changed in upgrades that first remove all pods with GPUs, "
            "whether or not the kubelet version is managed. See docs/concepts/stacks.md for the requirements of "
            "the kubelet."
        ),
    ] = KubeletSettingsSpec()


class ValidationSpec(Resource, frozen=True, kw_only=True):
    """Workload that runs on the GPUs of a node before its release, in addition to the checks of driver and
    devices.
    """

    workload_image: Annotated[
        ImageReference | None,
        described(
            "Image of a program that uses one GPU and exits with code 0 on success, for example NVIDIA's "
            "CUDA sample vectorAdd. If unset, no workload runs. On simulated GPUs a built-in program runs"
            " instead."
        ),
    ] = None
    runtime_class: Annotated[
        Text | None,
        described("RuntimeClass that makes GPUs available to the workload, if the default runtime does not."),
    ] = None


class RebootSpec(Resource, frozen=True, kw_only=True):
    """Kernel of the nodes, and how a node is rebooted into it in its upgrade, under the same acknowledgement."""

    kernel: Annotated[
        KernelRelease,
        described(
            "Kernel release that every node of the pool is rebooted into, as printed by `uname -r`. It "
            "must be installed on the nodes."
        ),
    ]
    select: Annotated[
        CommandWords,
        described(
            "Command on the node, with an absolute path, that selects the kernel for all further boots. "
            "The kernel release is appended as the last argument."
        ),
    ]
    restart: Annotated[
        CommandWords,
        described("Command on the node, with an absolute path, that reboots the node. Defaults to `/sbin/reboot`."),
    ] = field(default_factory=lambda: ["/sbin/reboot"])
