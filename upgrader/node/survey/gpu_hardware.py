"""GPUs and what belongs to them: their faults, MIG devices, NVSwitches, GPUDirect RDMA."""

from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.node_protocol.driver_services import DriverService
from upgrader.node.driver.loaded_driver import read_loaded_driver
from upgrader.node.host.pci import BRIDGES, NVIDIA
from upgrader.node.survey.surveyed_node import SurveyedNode, make_handled, make_problem, make_warning
from upgrader.node.validation.gpu_checks import LASTING, GpuFault, find_gpu_faults, find_missing_gpus
from upgrader.node.validation.gpu_inspection import VENDOR, list_driver_gpus
from upgrader.node.validation.smi_program import find_smi

SHOWN = 8
"""MIG devices that a message names."""


def count_gpus(node: SurveyedNode) -> int:
    """NVIDIA's GPUs on the PCI bus."""
    return sum(device.is_gpu for device in node.pci_devices)


def count_switches(node: SurveyedNode) -> int:
    """NVSwitches on the PCI bus."""
    return sum(device.vendor == NVIDIA and device.kind == BRIDGES for device in node.pci_devices)


def find_mig_devices(node: SurveyedNode) -> list[str]:
    """GPU instances of MIG, such as gpu0/gi1, by the capabilities of the loaded driver (NVIDIA's MIG user guide)."""
    root = node.host.proc / "driver/nvidia/capabilities"
    return sorted(f"{path.parent.parent.name}/{path.name}" for path in root.glob("gpu*/mig/gi*"))


def find_rdma_devices(node: SurveyedNode) -> list[str]:
    """InfiniBand and RoCE devices."""
    folder = node.system / "class/infiniband"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def check_gpus(node: SurveyedNode) -> Iterator[Advice]:
    """Faults of GPUs with the loaded driver, which the validation after an upgrade might find again."""
    for fault in _find_faults(node) if node.scope.vendor == VENDOR else ():
        make = make_problem if fault.check in LASTING else make_warning
        fix = f"{fault.fix[0].upper()}{fault.fix[1:]}."
        yield make(SurveyCheck.GPU_FAULT, fault.subject, f"{fault.check}: it {fault.message}", fix)


def _find_faults(node: SurveyedNode) -> Iterator[GpuFault]:
    driver_gpus = list_driver_gpus(node.host.proc)
    if not driver_gpus:
        return
    if missing := find_missing_gpus(node.pci_devices, driver_gpus):
        yield missing
    smi = find_smi(node.host.state / "drivers" / VENDOR / "current", node.programs)
    if smi is not None and read_loaded_driver(node.host.run, VENDOR) is not None:
        yield from find_gpu_faults(smi.read_report().gpus, smi.read_connections(node.pci_devices))


def check_mig(node: SurveyedNode) -> Iterator[Advice]:
    """MIG devices, which are lost when the driver is unloaded."""
    devices = find_mig_devices(node)
    if devices and node.scope.swaps_driver:
        yield make_problem(
            SurveyCheck.MIG,
            "MIG",
            f"the GPUs are partitioned ({', '.join(devices[:SHOWN])}{', …' if devices[SHOWN:] else ''}); an unload of "
            "the driver removes the partitions, and an upgrade does not create them again",
            "Delete the partitions and disable MIG mode before the upgrade (nvidia-smi mig -dci; nvidia-smi mig -dgi; "
            "nvidia-smi -mig 0), and create them after it.",
        )


def check_fabric_manager(node: SurveyedNode) -> Iterator[Advice]:
    """NVSwitches: CUDA works only after a fabric manager of exactly the version of the driver has started."""
    switches, gpus = count_switches(node), count_gpus(node)
    if node.scope.vendor != "nvidia" or not switches or not node.scope.swaps_driver:
        return
    services, hardware = node.scope.services, f"the node has {switches} NVSwitch(es) and {gpus} GPU(s)"
    if services is None:
        yield make_warning(
            SurveyCheck.FABRIC_MANAGER,
            "NVSwitch",
            f"{hardware}; CUDA programs need a fabric manager, and the driver image was not examined",
            "Check status.services of the DriverImage; the prepare step of an upgrade examines the image.",
        )
    elif DriverService.FABRIC_MANAGER in services:
        message = f"{hardware}; the driver image contains a fabric manager"
        yield make_handled(SurveyCheck.FABRIC_MANAGER, "NVSwitch", message)
    else:
        make = make_problem if gpus else make_warning  # without a GPU, no program of CUDA exists
        yield make(
            SurveyCheck.FABRIC_MANAGER,
            "NVSwitch",
            f"{hardware}; CUDA programs would fail with error 802, because the driver image contains no fabric manager",
            "Use a driver image with the service fabricmanager, or nodes without NVSwitch.",
        )


def check_rdma(node: SurveyedNode) -> Iterator[Advice]:
    """GPUDirect RDMA by nvidia_peermem, which an image that is built without NVIDIA's network driver does not have."""
    devices = find_rdma_devices(node)
    if devices and (node.system / "module/nvidia_peermem").is_dir() and node.scope.swaps_driver:
        yield make_warning(
            SurveyCheck.PEERMEM,
            "nvidia_peermem",
            f"GPUDirect RDMA uses nvidia_peermem on {len(devices)} RDMA device(s); the driver image has none that was "
            "compiled against the network driver of this node",
            "Check that jobs can use DMA-BUF (open modules, Linux 5.12 or newer); NCCL selects it by itself.",
        )
