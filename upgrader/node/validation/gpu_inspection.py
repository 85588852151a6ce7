"""Checks of NVIDIA's driver on a node: its libraries, its device files, each of its GPUs.

No GPU was available. The programs of nvidia-smi were run with a simulated library (dev/upgrader_dev/nvml).
"""

import os
import re
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.loaded_driver import LoadedDriver
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.pci import PciDevice, read_pci_devices
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.host.text_files import read_optional
from upgrader.node.validation.fabric import count_switches, find_manager_fault
from upgrader.node.validation.gpu_checks import (
    GpuCheck,
    GpuConnections,
    find_gpu_faults,
    find_missing_gpus,
    find_unregistered_gpus,
    summarize_gpus,
)
from upgrader.node.validation.gpu_report import GpuFacts
from upgrader.node.validation.smi_program import SmiProgram, find_smi

VENDOR = "nvidia"
LIBRARIES = ("libcuda.so.*", "libnvidia-*.so.*")
FABRIC_SECONDS, FABRIC_POLL_SECONDS = 180.0, 5.0
"""Time for the training of links and the registration of GPUs, after the driver was loaded and its services started."""

_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


class NodePaths(Struct, frozen=True, kw_only=True):
    """Paths of the node; `library` is the target of `current` of the driver and may not exist. `run`: RUN_DIRECTORY."""

    run: Path
    proc: Path
    sys: Path
    dev: Path
    library: Path


class _Gpu(Struct, frozen=True, kw_only=True):
    """A GPU of the driver. Its UUID is its address until the driver has initialized it, which an open device causes."""

    address: str
    uuid: str
    minor: str


def inspect_gpus(
    node: NodePaths, present: LoadedDriver, programs: ProgramRunner, clock: NodeClock
) -> tuple[dict[str, str], dict[str, str]]:
    """The fault of each GPU by its UUID, empty for a healthy GPU; and facts for the result.

    Raises:
        OrderFailedError: a fault of the libraries, of the driver as a whole, or of its device files.
    """
    facts = {"library": _check_libraries(node.library, present.version)}
    gpus = _read_gpus(node.proc)
    functions = _read_functions(node.sys)
    if missing := find_missing_gpus(functions, {gpu.address for gpu in gpus}):
        raise OrderFailedError(Reason.DEVICE_FAILED, str(missing))
    if len(gpus) != present.devices:
        raise OrderFailedError(
            Reason.DEVICE_FAILED, f"the driver has {len(gpus)} GPU(s), and had {present.devices} when it was loaded"
        )
    # Open devices keep their GPUs initialized, so that each run of nvidia-smi takes less time.
    with ExitStack() as opened:
        if fault := _open_device(node.dev / "nvidiactl", opened) or _find_uvm_fault(node.proc, node.dev):
            raise OrderFailedError(Reason.DEVICE_FAILED, fault)
        opening = {gpu.address: _open_device(node.dev / f"nvidia{gpu.minor}", opened) for gpu in gpus}
        # Read again: the driver knows the UUID of a GPU since it has initialized it.
        uuids = {gpu.address: gpu.uuid for gpu in (*gpus, *_read_gpus(node.proc)) if gpu.address in opening}
        smi = find_smi(node.library, programs)
        if smi is None:
            unreported = tuple(GpuFacts(uuid=uuid, address=address) for address, uuid in uuids.items())
            _wait_for_fabric(lambda: unreported, node, present, clock)
            return {uuids[gpu.address]: opening[gpu.address] for gpu in gpus}, facts | {"nvidia-smi": "not on the node"}
        if not gpus:
            # Without a GPU it fails, for example with exit code 255; `run` compares module and library.
            return {}, facts | {"nvidia-smi": str(smi.run("-q", "-x").code)}
        reported = _wait_for_fabric(lambda: _read_gpu_facts(smi, present), node, present, clock)
        connections = smi.read_connections(functions)
    uuids |= {gpu.address: gpu.uuid for gpu in reported if gpu.address in uuids}
    found = _describe_faults(reported, connections)
    faults = {
        uuid: opening[address] or found.get(uuid, "nvidia-smi does not list it") for address, uuid in uuids.items()
    }
    return faults, facts | summarize_gpus(reported, connections)


def _describe_faults(gpus: tuple[GpuFacts, ...], connections: GpuConnections) -> dict[str, str]:
    """The faults of each GPU by its UUID as a text, empty for a healthy GPU."""
    found = find_gpu_faults(gpus, connections)
    return {gpu.uuid: "; ".join(str(fault) for fault in found if fault.uuid == gpu.uuid) for gpu in gpus}


def _wait_for_fabric(
    read_gpus: Callable[[], tuple[GpuFacts, ...]], node: NodePaths, present: LoadedDriver, clock: NodeClock
) -> tuple[GpuFacts, ...]:
    """The GPUs, after a wait for the fabric manager of a node with NVSwitches, and for GPUs about to join the fabric.

    GPUs that have not joined in time have a fault of their own.

    Raises:
        OrderFailedError: DEVICE_FAILED: the fabric manager has a fault.
    """
    gpus: tuple[GpuFacts, ...] = ()
    switches = count_switches(node.proc)

    def find_manager() -> str:
        return find_manager_fault(node.run, present, gpus) if switches and gpus else ""

    def find_fault() -> str:
        nonlocal gpus
        gpus = read_gpus()
        return find_manager() or find_unregistered_gpus(gpus)

    poll_until_no_fault(find_fault, clock=clock, seconds=FABRIC_SECONDS, every=FABRIC_POLL_SECONDS)
    if fault := find_manager():
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{GpuCheck.FABRIC}: {switches} NVSwitch(es): {fault}")
    return gpus


def _read_gpu_facts(smi: SmiProgram, present: LoadedDriver) -> tuple[GpuFacts, ...]:
    report = smi.read_report()
    if report.driver_version != present.version:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"nvidia-smi reports driver {report.driver_version or 'none'}, loaded is {present.version}",
        )
    return report.gpus


def _read_functions(system: Path) -> tuple[PciDevice, ...]:
    try:
        return read_pci_devices(system)
    except (OSError, ValueError) as error:
        raise OrderFailedError(Reason.MISSING, f"the PCI devices cannot be read: {error}") from error


def _find_uvm_fault(proc: Path, dev: Path) -> str:
    """Why CUDA cannot open the device of unified memory; empty if it can, or if the kernel does not have it."""
    lines = (line.split() for line in read_optional(proc / "devices").splitlines())
    major = next((words[0] for words in lines if words[1:] == ["nvidia-uvm"]), "")
    file = dev / "nvidia-uvm"
    if not major:
        return ""
    try:
        status = file.stat()
    except OSError as error:
        found = error.strerror or "unreadable"
    else:
        found = f"major number {os.major(status.st_rdev)}" if stat.S_ISCHR(status.st_mode) else "no device file"
    if found == f"major number {major}":
        return ""
    return (
        f"{GpuCheck.UVM}: {file} must have the major number {major} of nvidia-uvm in the kernel, and is: {found}; "
        "delete the pod of the driver, whose successor makes the file"
    )


def _check_libraries(folder: Path, version: str) -> str:
    """Check that all libraries on the node have the version of the module; returns a summary for the facts."""
    if not folder.is_symlink() and not folder.exists():
        return "none on the node"
    versions = {
        path.name: match[1]
        for glob in LIBRARIES
        for path in folder.rglob(glob)
        if (match := _VERSION.search(path.name))
    }
    wrong = sorted(name for name, library_version in versions.items() if library_version != version)
    if wrong:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"{', '.join(wrong)} in {folder} has another version than the loaded module, {version}",
        )
    if not versions:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"{folder} contains no library of the driver")
    return f"{len(versions)} of {version}"


def list_driver_gpus(proc: Path) -> list[str]:
    """The PCI addresses of the GPUs that the loaded driver has; none without a driver."""
    folder = proc / "driver" / "nvidia" / "gpus"
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def _read_gpus(proc: Path) -> list[_Gpu]:
    return [_read_gpu(proc / "driver" / "nvidia" / "gpus" / address) for address in list_driver_gpus(proc)]


def _read_gpu(folder: Path) -> _Gpu:
    information = folder / "information"
    lines = (line.partition(":") for line in information.read_text(encoding="utf-8").splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    try:
        uuid, minor = fields["GPU UUID"], fields["Device Minor"]
    except KeyError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{information} does not contain {error}") from error
    return _Gpu(address=folder.name, uuid=folder.name if "?" in uuid else uuid, minor=minor)


def _open_device(path: Path, opened: ExitStack) -> str:
    """Open a device, which makes the driver initialize its GPU; returns the fault, empty if there is none."""
    try:
        opened.callback(os.close, os.open(path, os.O_RDWR))
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    return ""
