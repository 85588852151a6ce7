"""The GPUs that the simulated library reports, and the text that it reads: `nvml.c` describes the format.

The defaults are those of a healthy NVIDIA H100 in a system with NVSwitch. Nothing of this is a measurement.
"""

from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct


class FabricState(IntEnum):
    """States of the registration with the NVSwitch fabric, as in nvml.h."""

    NOT_STARTED = 1
    IN_PROGRESS = 2
    COMPLETED = 3


class SimulatedGpu(Struct, frozen=True, kw_only=True):
    """A GPU.

    Args:
        uuid: as nvidia-smi prints it.
        address: of its PCI function, as in sysfs.
        width, max_width: lanes of its PCIe link.
        uncorrected_dram, uncorrected_sram: memory errors since the driver was loaded.
        retirement_pending: GPUs before Ampere retire pages of their memory instead of rows; None means others.
        fabric: None means a GPU without NVSwitch. `fabric_status` is an error of NVML.
        links: whether each NVLink is active.
        partitions: UUIDs of its MIG devices. nvidia-smi -L lists them; -q -x reads them by a private function and does
            not.
        power_limit: in watts, of 200 to 700; the default of the GPU is 700. 0 means a GPU without one.
        lost: whether nvidia-smi cannot open it.
    """

    uuid: str
    address: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 85_520_809_984
    width: int = 16
    max_width: int = 16
    persistence: bool = False
    ecc: bool = True
    uncorrected_dram: int = 0
    uncorrected_sram: int = 0
    remap_pending: bool = False
    remap_failure: bool = False
    retirement_pending: bool | None = None
    mig: bool = False
    partitions: tuple[str, ...] = ()
    fabric: FabricState | None = FabricState.COMPLETED
    fabric_status: int = 0
    links: tuple[bool, ...] = (True,) * 18
    power_limit: int = 700
    lost: bool = False


class SimulatedDriver(Struct, frozen=True, kw_only=True):
    """A driver and its GPUs, by index.

    `version` is reported on a machine on which no module is loaded. `failure` is the error of NVML with which every
    program fails at its start: 9 without a module, 18 for a module of another version.
    """

    version: str
    gpus: tuple[SimulatedGpu, ...]
    failure: int = 0


_GPU_IS_LOST = 15
_UNCORRECTED, _VOLATILE, _DRAM, _SRAM = 1, 0, 2, 7
_LINK_COUNT, _LINK_SPEED, _LINK_STATE = 91, 164, 165
_MEGABYTES_PER_SECOND = 26562


def simulate_node(version: str, count: int = 8) -> SimulatedDriver:
    """A driver with this number of healthy GPUs."""
    gpus = (
        SimulatedGpu(uuid=f"GPU-{index:08d}-0000-4000-8000-000000000000", address=f"0000:{0x1B + 16 * index:02x}:00.0")
        for index in range(count)
    )
    return SimulatedDriver(version=version, gpus=tuple(gpus))


def render_description(driver: SimulatedDriver) -> str:
    """The text that the library reads."""
    lines = [
        ("node", "DriverVersion", driver.version),
        ("node", "CudaDriverVersion", 12020),
        ("node", "Count", len(driver.gpus)),
        ("node", "Init", driver.failure),
    ]
    for index, gpu in enumerate(driver.gpus):
        lines += [(str(index), key, value) for key, value in _list_answers(index, gpu)]
        for number, uuid in enumerate(gpu.partitions):
            lines.append((f"{index}.{number}", "UUID", uuid))
            lines.append((f"{index}.{number}", "Name", f"{gpu.name} MIG 1g.10gb"))
    return "".join(f"{scope} {key} {value}\n" for scope, key, value in lines)


def _list_answers(index: int, gpu: SimulatedGpu) -> Iterator[tuple[str, str | int]]:
    answers: dict[str, str | int] = {
        "Name": gpu.name,
        "UUID": gpu.uuid,
        "MinorNumber": index,
        "Brand": 14,  # NVIDIA
        "Architecture": 9,  # Hopper
        "PciInfo.busId": f"0000{gpu.address.upper()}",
        "PciInfo.pciDeviceId": "0x233010DE",
        "PciInfo.pciSubSystemId": "0x16C110DE",
        "PciInfo.baseClass": 3,
        "PciInfo.subClass": 2,
        "CurrPcieLinkGeneration": 1,  # while it is idle
        "MaxPcieLinkGeneration": 5,
        "GpuMaxPcieLinkGeneration": 5,
        "CurrPcieLinkWidth": gpu.width,
        "MaxPcieLinkWidth": gpu.max_width,
        "PersistenceMode": int(gpu.persistence),
        "DisplayMode": 1,
        "ComputeMode": 0,
        "PerformanceState": 0,
        "Temperature.0": 33,
        "UtilizationRates.gpu": 0,
        "UtilizationRates.memory": 0,
        "MemoryInfo.total": gpu.memory_bytes,
        "MaxMigDeviceCount": 7,
        "MigMode.current": int(gpu.mig),
        "MigMode.pending": int(gpu.mig),
    }
    yield from answers.items()
    yield from _list_errors(gpu)
    yield f"FieldValues.{_LINK_COUNT}.0", len(gpu.links)
    for number, active in enumerate(gpu.links):
        yield f"FieldValues.{_LINK_STATE}.{number}", int(active)
        yield f"FieldValues.{_LINK_SPEED}.{number}", _MEGABYTES_PER_SECOND
    for field, watts in _power_limits(gpu).items():
        yield f"FieldValues.{field}.0", watts * 1000
    if gpu.fabric is not None:
        yield "GpuFabricInfo.state", int(gpu.fabric)
        yield "GpuFabricInfo.status", gpu.fabric_status
        yield "GpuFabricInfo.healthMask", 2  # the bandwidth is not degraded
    if gpu.lost:
        yield "Handle", _GPU_IS_LOST


def _power_limits(gpu: SimulatedGpu) -> dict[int, int]:
    lowest, highest, default, current, requested = 187, 188, 189, 190, 192
    limits = {lowest: 200, highest: 700, default: 700, current: gpu.power_limit, requested: gpu.power_limit}
    return limits if gpu.power_limit else {}


def _list_errors(gpu: SimulatedGpu) -> Iterator[tuple[str, str | int]]:
    """Memory errors: none but uncorrected ones since the driver was loaded are simulated."""
    yield "EccMode.current", int(gpu.ecc)
    yield "EccMode.pending", int(gpu.ecc)
    if not gpu.ecc:
        return
    counted = {_DRAM: gpu.uncorrected_dram, _SRAM: gpu.uncorrected_sram}
    for error in (0, _UNCORRECTED):
        for counter in (_VOLATILE, 1):
            found = counted if (error, counter) == (_UNCORRECTED, _VOLATILE) else dict.fromkeys(counted, 0)
            yield f"TotalEccErrors.{error}.{counter}", sum(found.values())
            for location, count in found.items():
                yield f"MemoryErrorCounter.{error}.{counter}.{location}", count
    if gpu.retirement_pending is not None:
        yield "RetiredPagesPendingStatus", int(gpu.retirement_pending)
    yield "SramEccErrorStatus.volatileUncParity", 0
    yield "SramEccErrorStatus.volatileUncSecDed", gpu.uncorrected_sram
    yield "RemappedRows.corrRows", 0
    yield "RemappedRows.uncRows", int(gpu.remap_pending or gpu.remap_failure)
    yield "RemappedRows.isPending", int(gpu.remap_pending)
    yield "RemappedRows.failureOccurred", int(gpu.remap_failure)
