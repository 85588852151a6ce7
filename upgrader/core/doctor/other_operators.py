"""Other operators that drain nodes or replace drivers, detected by their objects in the cluster."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity

CHECK = "OtherOperators"

_DEFINITIONS = {
    "clusterpolicies.nvidia.com": (
        "NVIDIA's GPU Operator",
        "Disable its driver and device plugin on nodes of GpuStacks (driver.enabled, devicePlugin.enabled: false).",
    ),
    "nvidiadrivers.nvidia.com": (
        "NVIDIA's GPU Operator",
        "No NVIDIADriver may select nodes of GpuStacks.",
    ),
    "nodemaintenances.maintenance.nvidia.com": (
        "NVIDIA's maintenance operator",
        "Exclude nodes of GpuStacks: it cordons them before their jobs have written a checkpoint.",
    ),
    "nodemaintenances.nodemaintenance.medik8s.io": (
        "the node maintenance operator",
        (
            "Create no NodeMaintenance for nodes of GpuStacks while a plan runs: it drains them without a checkpoint "
            "request."
        ),
    ),
    "plans.upgrade.cattle.io": (
        "the system upgrade controller",
        "None of its Plans may select nodes of GpuStacks: it drains them without a checkpoint request.",
    ),
    "machineconfigpools.machineconfiguration.openshift.io": (
        "OpenShift's machine config operator",
        "Pause the pool of these nodes while a plan runs: it drains them without a checkpoint request.",
    ),
}
"""CustomResourceDefinition -> its operator, what to do."""

_DAEMONSETS = {
    "nvidia-driver-daemonset": ("loads NVIDIA's driver", True),
    "nvidia-device-plugin": ("is a device plugin", True),
    "kured": ("reboots nodes", False),
}
"""Part of a DaemonSet's name -> what it does, and whether two of that kind conflict on one node."""

_NODE_LABELS = {
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
}
"""Labels by which NVIDIA's GPU Operator deploys its operands on a node."""


class DaemonSetFacts(Struct, frozen=True, kw_only=True):
    """A DaemonSet of another operator; `pods` is the number that it should have."""

    name: str
    pods: int


def other_operators(
    definitions: Iterable[str], daemonsets: Iterable[DaemonSetFacts], nodes: Mapping[str, Mapping[str, str]]
) -> tuple[Advice, ...]:
    """Other operators that may change nodes of stacks; `nodes`: labels of those nodes by name."""
    findings = [
        _make_advice(whose, Severity.WARNING, f"{whose} is installed ({name}).", fix)
        for name in sorted(set(definitions))
        if name in _DEFINITIONS
        for whose, fix in (_DEFINITIONS[name],)
    ]
    for daemonset in sorted(daemonsets, key=lambda daemonset: daemonset.name):
        for part, (does, same) in _DAEMONSETS.items():
            if daemonset.pods and part in daemonset.name.rpartition("/")[2]:
                clash = same and bool(nodes)
                findings.append(
                    _make_advice(
                        f"DaemonSet {daemonset.name}",
                        Severity.WARNING,
                        f"It {does} and has {daemonset.pods} pods.",
                        "Exclude the nodes of GpuStacks by its node selector."
                        if clash
                        else "Exclude nodes of GpuStacks while a plan runs.",
                    )
                )
    deployed_on = sorted(
        name for name, labels in nodes.items() if any(labels.get(key) == value for key, value in _NODE_LABELS.items())
    )
    if deployed_on:
        findings.append(
            _make_advice(
                "NVIDIA's GPU Operator",
                Severity.PROBLEM,
                f"It deploys its driver or device plugin on {len(deployed_on)} nodes of GpuStacks, "
                f"{deployed_on[0]} among them.",
                f"Set the labels {' and '.join(_NODE_LABELS)} of these nodes to false.",
            )
        )
    nobody = Advice(
        subject="nodes", check=CHECK, severity=Severity.OK, message="no other operator that upgrades them was found"
    )
    return tuple(findings) or (nobody,)


def _make_advice(subject: str, severity: Severity, message: str, fix: str) -> Advice:
    return Advice(subject=subject, check=CHECK, severity=severity, message=message, fix=fix)
