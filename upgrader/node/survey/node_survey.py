"""All checks of the survey, each by itself: one that fails is a finding, and hides no other finding."""

from collections.abc import Callable, Iterator

import msgspec

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.node_survey import SurveyCheck, SurveyReport
from upgrader.core.errors import UpgraderError
from upgrader.node.driver.foreign_driver import MODULES, read_module_version
from upgrader.node.host.features import read_os_release
from upgrader.node.survey import (
    boot_modules,
    container_toolkit,
    driver_users,
    gpu_hardware,
    kernel_policy,
    kubelet_service,
    operating_system,
    runtime_support,
)
from upgrader.node.survey.surveyed_node import SurveyedNode, make_warning

Check = Callable[[SurveyedNode], Iterator[Advice]]

CHECKS: dict[str, Check] = {
    "operating system": operating_system.check_distribution,
    "driver": driver_users.check_foreign_driver,
    "processes that use the driver": driver_users.check_driver_users,
    "modules that use the driver": driver_users.check_companions,
    "nouveau": boot_modules.check_nouveau,
    "modules at boot": boot_modules.check_boot,
    "module parameters": boot_modules.check_parameters,
    "libraries of the node": boot_modules.check_libraries,
    "firmware path": kernel_policy.check_firmware_path,
    "module signatures": kernel_policy.check_signatures,
    "GPUs": gpu_hardware.check_gpus,
    "MIG": gpu_hardware.check_mig,
    "NVSwitch": gpu_hardware.check_fabric_manager,
    "GPUDirect RDMA": gpu_hardware.check_rdma,
    "unit of the kubelet": kubelet_service.check_kubelet_unit,
    "arguments of the kubelet": kubelet_service.check_kubelet_arguments,
    "container runtime": runtime_support.check_container_runtime,
    "cgroup version": runtime_support.check_cgroup_version,
    "container toolkit": container_toolkit.check_toolkit,
    "CDI specifications": container_toolkit.check_cdi,
    "packages": operating_system.check_package_upgrades,
}
"""By subject; the order of findings of the same severity."""

_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.OK)


def survey_node(node: SurveyedNode) -> SurveyReport:
    """Run all checks; nothing on the node is changed."""
    findings = [advice for subject, check in CHECKS.items() for advice in _run_check(node, subject, check)]
    return SurveyReport(
        findings=tuple(sorted(findings, key=lambda advice: _ORDER.index(advice.severity))), facts=_read_facts(node)
    )


def _run_check(node: SurveyedNode, subject: str, check: Check) -> list[Advice]:
    try:
        return list(check(node))
    except (OSError, ValueError, UpgraderError, msgspec.MsgspecError) as error:
        fix = "Compare the message with the state of the node; the other checks are complete."
        return [make_warning(SurveyCheck.CANNOT_LOOK, subject, f"the check failed: {error}", fix)]


def _read_facts(node: SurveyedNode) -> dict[str, str]:
    """Facts that are known; one that cannot be read is left out, since its check has reported it."""
    facts: dict[str, str] = {}
    for name, read in _FACTS.items():
        try:
            value = read(node)
        except (OSError, ValueError, UpgraderError, msgspec.MsgspecError):
            continue
        if value:
            facts[name] = value
    return facts


def _describe_system(node: SurveyedNode) -> str:
    release = read_os_release(node.host)
    return release.get("PRETTY_NAME", release.get("ID", ""))


def _describe_driver(node: SurveyedNode) -> str:
    module = node.system / "module" / (MODULES.get(node.scope.vendor) or "none")
    return f"{node.scope.vendor} {read_module_version(module)}" if module.is_dir() else "not loaded"


_FACTS: dict[str, Callable[[SurveyedNode], str]] = {
    "operating system": _describe_system,
    "kernel": lambda node: node.host.kernel(),
    "driver": _describe_driver,
    "GPUs": lambda node: str(gpu_hardware.count_gpus(node)),
    "NVSwitches": lambda node: str(gpu_hardware.count_switches(node) or ""),
    "RDMA devices": lambda node: ", ".join(gpu_hardware.find_rdma_devices(node)),
    "MIG devices": lambda node: ", ".join(gpu_hardware.find_mig_devices(node)),
    "module signatures": lambda node: kernel_policy.signature_policy(node) or "not required",
    "container runtime": lambda node: node.readiness.runtime if node.readiness else "",
    "kubelet": lambda node: node.readiness.kubelet_version if node.readiness else "",
    "cgroup": lambda node: "v2" if runtime_support.has_cgroup_v2(node) else "v1",
}
