"""GpuStack.spec: kubelet, validation and reboot of the nodes of a pool."""

from typing import Annotated, Literal

from msgspec import Meta, field

from upgrader.core.fields import (
    CommandWords,
    ImageReference,
    KernelRelease,
    KubeletVersion,
    Resource,
    Text,
    UnitNames,
    field_doc,
)
from upgrader.core.model.validation import AllReduce, Diagnostics

CpuList = Annotated[str, Meta(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$", max_length=253)]


class KubeletSettingsSpec(Resource, frozen=True, kw_only=True):
    """Fields of the kubelet configuration that place pods on CPUs. A field that is unset keeps the value of the
    node.
    """

    cpu_manager_policy: Annotated[
        Literal["none", "static"] | None,
        field_doc(
            "CPU manager policy. `static`: containers of Guaranteed pods that request whole CPUs have "
            "exclusive use of them."
        ),
    ] = None
    reserved_cpus: Annotated[
        CpuList | None,
        field_doc(
            "CPUs that are reserved for the system, for example `0-3,64-67`. No container has exclusive "
            "use of them. Required if `cpuManagerPolicy` is `static`."
        ),
    ] = None
    topology_manager_policy: Annotated[
        Literal["none", "best-effort", "restricted", "single-numa-node"] | None,
        field_doc("Topology manager policy: how strictly the GPUs and CPUs of a pod are placed on the same NUMA node."),
    ] = None
    topology_manager_scope: Annotated[
        Literal["container", "pod"] | None,
        field_doc(
            "Topology manager scope: whether the policy applies to each container or to the whole pod. "
            "Requires `topologyManagerPolicy`."
        ),
    ] = None

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """Fields that are set, by their names in KubeletConfiguration (kubelet.config.k8s.io/v1beta1)."""
        pairs = (
            ("cpuManagerPolicy", self.cpu_manager_policy),
            ("reservedSystemCPUs", self.reserved_cpus),
            ("topologyManagerPolicy", self.topology_manager_policy),
            ("topologyManagerScope", self.topology_manager_scope),
        )
        return tuple((name, value) for name, value in pairs if value is not None)


class KubeletSpec(Resource, frozen=True, kw_only=True):
    manage: Annotated[bool, field_doc("Whether node upgrades replace the kubelet binary. Defaults to false.")] = False
    version: Annotated[
        KubeletVersion | None, field_doc("Kubelet version, for example 1.35.4. Required if `manage` is true.")
    ] = None
    artifact: Annotated[
        ImageReference | None,
        field_doc(
            "Image that contains the kubelet binary. Required if `manage` is true. See docs/reference/node-contract.md."
        ),
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
        field_doc(
            "Settings of the kubelet. A node upgrade changes them after all pods with GPUs have left the "
            "node, whether or not `manage` is true. See docs/concepts/stacks.md for the requirements on "
            "the kubelet."
        ),
    ] = KubeletSettingsSpec()


class ValidationSpec(Resource, frozen=True, kw_only=True):
    """Programs that run on the GPUs of a node before its release, in addition to the checks of driver and devices."""

    workload_image: Annotated[
        ImageReference | None,
        field_doc(
            "Image of a program that uses one GPU and exits with code 0 on success, for example NVIDIA's "
            "CUDA sample vectorAdd. If unset, no workload runs. On simulated GPUs a built-in program runs"
            " instead."
        ),
    ] = None
    runtime_class: Annotated[
        Text | None,
        field_doc(
            "RuntimeClass that makes GPUs available to the programs. If unset, the default runtime is "
            "used. Requires `workloadImage`, `allReduce` or `diagnostics`."
        ),
    ] = None
    all_reduce: Annotated[
        AllReduce | None,
        field_doc(
            "All-reduce over all GPUs of a node, in plans with the validation level AllReduce or Diagnostics. If "
            "unset, no plan can request these levels."
        ),
    ] = None
    diagnostics: Annotated[
        Diagnostics | None,
        field_doc(
            "Diagnostics of all GPUs of a node, in plans with the validation level Diagnostics. If unset, no plan can "
            "request this level."
        ),
    ] = None


class HostSpec(Resource, frozen=True, kw_only=True):
    """Programs of the nodes beside the stack."""

    stop: Annotated[
        UnitNames,
        field_doc(
            "systemd units of the nodes that use the driver, for example `nvidia-dcgm.service`. An upgrade stops those "
            "that run before it unloads the driver, and they start again when a driver is loaded."
        ),
    ] = []


class RebootSpec(Resource, frozen=True, kw_only=True):
    """Kernel of the nodes, and how a node is rebooted into it in its upgrade, under the same acknowledgement."""

    kernel: Annotated[
        KernelRelease,
        field_doc(
            "Kernel release that every node of the pool is rebooted into, as printed by `uname -r`. It "
            "must be installed on the nodes."
        ),
    ]
    select: Annotated[
        CommandWords,
        field_doc(
            "Command on the node, with an absolute path, that selects the kernel for all further boots. "
            "The kernel release is appended as the last argument."
        ),
    ]
    restart: Annotated[
        CommandWords,
        field_doc(
            "Command on the node, with an absolute path, that reboots the node. Defaults to `/sbin/reboot`, "
            "instead of which `systemctl reboot` runs where systemd is the first process of the node."
        ),
    ] = field(default_factory=lambda: ["/sbin/reboot"])
    on_loss: Annotated[
        Literal["Fail", "Report"],
        field_doc(
            "What happens if a node has less after a reboot than before: network links, InfiniBand ports, virtual "
            "functions, mounts, out-of-tree kernel modules, PCIe lanes, or allocatable resources. `Fail`: "
            "the upgrade fails with reason NodeDegraded and reverts. `Report`: the upgrade continues, and the result "
            "of its step has a remark. Defaults to `Fail`."
        ),
    ] = "Fail"
    settle_seconds: Annotated[
        int,
        Meta(
            description="Time in seconds that a node has after a reboot until it must have what it had before. A part "
            "of the phase Upgrading. Defaults to 300.",
            ge=10,
            le=3600,
        ),
    ] = 300
