"""Preparing: check, while jobs run, that a node can be upgraded. Nothing is loaded, started or replaced.

A fault that is found here interrupts no job: no gang was requested to write a checkpoint yet.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.core.node_protocol.orders import (
    KubeletSettings,
    KubeletTarget,
    NodeDriver,
    OrderResult,
    PrepareOrder,
    Reason,
    SurveyScope,
)
from upgrader.node.driver.module_parameters import describe_parameters, unknown_parameters
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import kubelet_settings
from upgrader.node.kubelet.kubelet import Kubelet
from upgrader.node.upgrade.reboot import reboot_obstacle
from upgrader.node.upgrade.upgrade_record import find_fetched_kubelet
from upgrader.process import atomic_file

KUBELET_COPIES = 3
"""Files of the size of the kubelet that an upgrade requires: the previous one, the new one, and a temporary one."""


SIGNATURE_CHECK = "signature"
"""Of the manifest's checks, that of the modules' signatures (upgrader.core.driver_build.driver_builds.CheckName)."""


class NodeDriverModule(Struct, frozen=True, kw_only=True):
    """A kernel module of a driver image."""

    name: str
    parameters: tuple[str, ...] | None = None


class NodeDriverService(Struct, frozen=True, kw_only=True):
    """A service of a driver image."""

    name: str


class NodeDriverManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """/driver/manifest.json of a driver image; `simulated` means that it contains no kernel module.

    `modules` are in load order, each with the names of its parameters; an older image does not list them. `checks`:
    whether each check of the image passed when it was built; None means that it was not made. `signerKeyId`: id of
    the certificate of signed modules in a keyring of the kernel.
    """

    vendor: str
    version: str
    kernel: str
    simulated: bool = False
    modules: tuple[NodeDriverModule, ...] = ()
    checks: dict[str, bool | None] = {}
    signer_key_id: str = ""
    services: tuple[NodeDriverService, ...] = ()


def prepare_node(
    order: PrepareOrder, *, host: Host, kubelet: Kubelet, survey: Callable[[SurveyScope], SurveyReport]
) -> OrderResult:
    """Run the checks of an order, the cheapest first.

    `survey` examines the node itself, as far as the order requests it.

    Raises:
        OrderFailedError: the first failed check.
    """
    kernel = host.kernel()
    changes_kernel = order.reboot is not None and not order.reboot.only_after_failed_unload
    if not changes_kernel and kernel != order.kernel:
        raise OrderFailedError(
            Reason.KERNEL_MISMATCH, f"the node runs kernel {kernel}, the upgrade was planned for {order.kernel}"
        )
    if order.reboot is not None:
        for release in (order.reboot.kernel, kernel):  # a revert boots the running kernel
            if obstacle := reboot_obstacle(msgspec.structs.replace(order.reboot, kernel=release), host):
                raise OrderFailedError(Reason.MISSING, obstacle)
    manifest = _read_manifest(Path(order.manifest))
    _check_manifest(manifest, order.kernel, order.driver)
    facts = {"kernel": kernel, "driver": f"{manifest.vendor} {manifest.version}"}
    if order.reboot is not None and changes_kernel:
        facts["kernel after"] = order.reboot.kernel
    if manifest.simulated:
        facts["simulated"] = "the driver image contains no kernel module"
    needed = {host.state: order.min_free_bytes}
    if order.kubelet is not None:
        size = _check_kubelet(order.kubelet, host, kubelet)
        facts["kubelet"] = order.kubelet.version
        needed[host.path(order.kubelet.binary).parent] = KUBELET_COPIES * size
    if order.settings is not None:
        facts["kubelet settings"] = _check_settings(order.settings, host, kubelet)
    if order.parameters:
        facts["module parameters"] = _check_parameters(order.parameters, manifest)
    for folder, size_needed in needed.items():
        _check_room(host, folder, size_needed)
    if order.survey is not None:
        scope = msgspec.structs.replace(
            order.survey,
            signed=manifest.checks.get(SIGNATURE_CHECK),
            signer_key_id=manifest.signer_key_id,
            services=tuple(service.name for service in manifest.services),
        )
        facts |= _check_survey(survey(scope))
    return OrderResult(reason=Reason.DONE, message="the node can be upgraded", facts=facts)


def _check_parameters(values: dict[str, str], manifest: NodeDriverManifest) -> str:
    known = {
        module.name: None if module.parameters is None else frozenset(module.parameters) for module in manifest.modules
    }
    if refusal := unknown_parameters(values, known):
        raise OrderFailedError(
            Reason.MISSING, f"{refusal}. Correct spec.driver.parameters of the stack; `modinfo -p` lists them"
        )
    return describe_parameters(values)


def _check_survey(report: SurveyReport) -> dict[str, str]:
    """Fail with all problems of the node; returns its warnings, for the facts of the result."""
    if report.problems:
        raise OrderFailedError(
            Reason.UNSUITABLE,
            "; ".join(f"{advice.check}: {advice.subject} {advice.message}. {advice.fix}" for advice in report.problems),
        )
    warnings = sorted({f"{advice.check} ({advice.subject})" for advice in report.warnings})
    return {"warnings": ", ".join(warnings)} if warnings else {}


def _read_manifest(path: Path) -> NodeDriverManifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeDriverManifest)
    except FileNotFoundError as error:
        raise OrderFailedError(
            Reason.MISSING,
            f"the driver image wrote no manifest to {path}: is it a driver image (docs/reference/node-contract.md)?",
        ) from error
    except msgspec.DecodeError as error:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"the manifest of the driver image is invalid: {error}"
        ) from error


def _check_manifest(manifest: NodeDriverManifest, kernel: str, driver: NodeDriver) -> None:
    if (manifest.vendor, manifest.version) != (driver.vendor, driver.version):
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"the image contains {manifest.vendor} {manifest.version}, expected is {driver.vendor} {driver.version}; "
            "correct the DriverImage",
        )
    if manifest.kernel != kernel:
        raise OrderFailedError(
            Reason.KERNEL_MISMATCH,
            f"the image is for kernel {manifest.kernel}, required is {kernel}; correct the DriverImage",
        )


def _check_kubelet(target: KubeletTarget, host: Host, kubelet: Kubelet) -> int:
    """Check the fetched kubelet and the running one; returns the size of the fetched file, in bytes."""
    fetched = find_fetched_kubelet(host, target.version)
    if fetched is None:
        raise OrderFailedError(
            Reason.MISSING,
            f"the artifact image wrote no kubelet to {STATE_DIRECTORY}/kubelet/{target.version}: is it a kubelet "
            "artifact (docs/reference/node-contract.md)?",
        )
    for path in (fetched.binary, fetched.binary.with_name("kubelet.sha256"), fetched.binary.parent):
        atomic_file.sync_to_disk(path)
    version = kubelet.read_version(fetched.binary)
    if version.removeprefix("v") != target.version.removeprefix("v"):
        raise OrderFailedError(
            Reason.CHECKSUM_MISMATCH, f"the kubelet of the artifact has version {version}, expected is {target.version}"
        )
    _check_present(target.binary, kubelet)
    return fetched.binary.stat().st_size


def _check_settings(settings: KubeletSettings, host: Host, kubelet: Kubelet) -> str:
    """Check that the running kubelet would use the settings; returns them as text."""
    _check_present(settings.binary, kubelet)
    running = kubelet.running()
    if not running:
        raise OrderFailedError(Reason.MISSING, "the kubelet ended during the check")
    if refusal := kubelet_settings.settings_refusal(host, running[0], settings.values):
        raise OrderFailedError(Reason.MISSING, refusal)
    return kubelet_settings.describe_settings(settings.values)


def _check_present(binary: str, kubelet: Kubelet) -> None:
    running = kubelet.running()
    if not running:
        raise OrderFailedError(
            Reason.MISSING,
            f"no kubelet with a kubeconfig runs from {binary} on this node; set spec.kubelet.binary of the stack "
            "to its executable",
        )
    if fault := kubelet.healthz_fault(running[0]):
        raise OrderFailedError(Reason.MISSING, f"the kubelet is not healthy before the upgrade: {fault}")
    try:
        view = kubelet.read_node(running[0])
    except OSError as error:
        raise OrderFailedError(
            Reason.MISSING,
            f"the credentials of the kubelet cannot read its Node, so the upgrade could not be checked: {error}",
        ) from error
    if not view.ready:
        raise OrderFailedError(Reason.MISSING, "the node is not Ready before the upgrade")


def _check_room(host: Host, folder: Path, needed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    facts = os.statvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    if free < needed:
        raise OrderFailedError(
            Reason.DISK_FULL, f"{host.on_node(folder)} has {free >> 20} MiB free, {needed >> 20} MiB are required"
        )
