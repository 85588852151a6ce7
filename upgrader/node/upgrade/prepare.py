"""Preparing: prove, while jobs run, that a node can be upgraded. Nothing is loaded, started or switched.

What is found wrong here costs nobody anything: no gang was asked yet.
"""

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.core.node_protocol.orders import Driver, KubeletSettings, KubeletTarget, OrderResult, PrepareOrder, Reason
from upgrader.node.host import atomic_file
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import kubelet_settings
from upgrader.node.kubelet.kubelet import Kubelet
from upgrader.node.upgrade.reboot import possible
from upgrader.node.upgrade.upgrade_record import fetched

COPIES = 3
"""Files of the kubelet's size that a swap may need room for: the kept one, the new one beside, one to put it back."""


class Manifest(Struct, frozen=True, kw_only=True):
    """/driver/manifest.json of a driver image: for which kernel it is, and whether a module is in it."""

    vendor: str
    version: str
    kernel: str
    simulated: bool = False


def prepare(order: PrepareOrder, *, host: Host, kubelet: Kubelet) -> OrderResult:
    """Check what the order names, in the order of the cheapest first.

    Raises:
        OrderFailedError: the first thing that is not as it should be.
    """
    kernel = host.kernel()
    if order.reboot is None and kernel != order.kernel:
        raise OrderFailedError(
            Reason.KERNEL_MISMATCH, f"the node runs kernel {kernel}, the upgrade was planned for {order.kernel}"
        )
    if order.reboot is not None:
        for there in (order.reboot.kernel, kernel):  # the way back leads to the one that runs
            if wrong := possible(msgspec.structs.replace(order.reboot, kernel=there), host):
                raise OrderFailedError(Reason.MISSING, wrong)
    manifest = _manifest(Path(order.manifest))
    _check_manifest(manifest, order.kernel, order.driver)
    facts = {"kernel": kernel, "driver": f"{manifest.vendor} {manifest.version}"}
    if order.reboot is not None:
        facts["kernel after"] = order.reboot.kernel
    if manifest.simulated:
        facts["simulated"] = "the driver image holds no kernel module"
    needed = {host.state: order.min_free_bytes}
    if order.kubelet is not None:
        size = _check_kubelet(order.kubelet, host, kubelet)
        facts["kubelet"] = order.kubelet.version
        needed[host.path(order.kubelet.binary).parent] = COPIES * size
    if order.settings is not None:
        facts["kubelet settings"] = _check_settings(order.settings, host, kubelet)
    for folder, wanted in needed.items():
        _check_room(host, folder, wanted)
    return OrderResult(reason=Reason.DONE, message="the node can be upgraded", facts=facts)


def _manifest(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise OrderFailedError(
            Reason.MISSING,
            f"the driver image left no manifest at {path}: is it a driver image (docs/reference/node-contract.md)?",
        ) from error
    except msgspec.DecodeError as error:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"the driver image's manifest cannot be read: {error}"
        ) from error


def _check_manifest(manifest: Manifest, kernel: str, wanted: Driver) -> None:
    if (manifest.vendor, manifest.version) != (wanted.vendor, wanted.version):
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"the image holds {manifest.vendor} {manifest.version}, wanted is {wanted.vendor} {wanted.version}; "
            "correct the DriverImage",
        )
    if manifest.kernel != kernel:
        raise OrderFailedError(
            Reason.KERNEL_MISMATCH,
            f"the image is for kernel {manifest.kernel}, the driver is needed for {kernel}; correct the DriverImage",
        )


def _check_kubelet(target: KubeletTarget, host: Host, kubelet: Kubelet) -> int:
    """The fetched file is whole, on disk and runs here; the present kubelet can be replaced and judged. Its size."""
    whole = fetched(host, target.version)
    if whole is None:
        raise OrderFailedError(
            Reason.MISSING,
            f"the artifact image left no kubelet under {STATE_DIRECTORY}/kubelet/{target.version}: is it a kubelet "
            "artifact (docs/reference/node-contract.md)?",
        )
    for path in (whole.binary, whole.binary.with_name("kubelet.sha256"), whole.binary.parent):
        atomic_file.sync(path)
    said = kubelet.version(whole.binary)
    if said.removeprefix("v") != target.version.removeprefix("v"):
        raise OrderFailedError(
            Reason.CHECKSUM_MISMATCH, f"the artifact's kubelet says it is {said}, wanted is {target.version}"
        )
    _check_present(target.binary, kubelet)
    return whole.binary.stat().st_size


def _check_settings(wanted: KubeletSettings, host: Host, kubelet: Kubelet) -> str:
    """The kubelet that runs would take the settings; they, as a sentence's part."""
    _check_present(wanted.binary, kubelet)
    running = kubelet.running()
    if not running:
        raise OrderFailedError(Reason.MISSING, "the kubelet ended while it was looked at")
    if wrong := kubelet_settings.refusal(host, running[0], wanted.values):
        raise OrderFailedError(Reason.MISSING, wrong)
    return kubelet_settings.shown(wanted.values)


def _check_present(binary: str, kubelet: Kubelet) -> None:
    running = kubelet.running()
    if not running:
        raise OrderFailedError(
            Reason.MISSING,
            f"no kubelet with a kubeconfig runs from {binary} on this node; set the stack's spec.kubelet.binary "
            "to the file it runs from",
        )
    if wrong := kubelet.healthz(running[0]):
        raise OrderFailedError(Reason.MISSING, f"the kubelet that runs is not well before the upgrade: {wrong}")
    try:
        view = kubelet.node(running[0])
    except OSError as error:
        raise OrderFailedError(
            Reason.MISSING, f"the kubelet's credentials do not show its node, so a swap could not be judged: {error}"
        ) from error
    if not view.ready:
        raise OrderFailedError(Reason.MISSING, "the node is not Ready before the upgrade")


def _check_room(host: Host, folder: Path, wanted: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    facts = os.statvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    if free < wanted:
        raise OrderFailedError(
            Reason.DISK_FULL, f"{host.on_node(folder)} has {free >> 20} MiB free, {wanted >> 20} MiB are needed"
        )
