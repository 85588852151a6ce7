"""Checks of the GPUs of a node by what nvidia-smi, the PCI bus and the kernel report. Pure.

A check compares only what is reported: a GPU without NVLink has no fault of NVLink. A value that is reported and not
understood, such as `GPU is lost`, is a fault.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from upgrader.node.host.pci import PciDevice
from upgrader.node.validation.gpu_report import GpuFacts

INACTIVE = "<inactive>"
"""State of a link in the output of `nvidia-smi nvlink -s`; an active link has a speed."""
OWN_DRIVERS = frozenset({"", "nvidia", "nouveau"})
"""Drivers of PCI functions that are to be GPUs of the loaded driver. A function with another driver, such as vfio-pci,
was given to that on purpose.
"""

_WIDTH = re.compile(r"(\d{1,2})x")


class GpuCheck(StrEnum):
    """The checks of a GPU, by the names that messages contain."""

    PCI_FUNCTIONS = "PciFunctions"
    UVM = "UnifiedMemory"
    WIDTH = "PcieWidth"
    ECC = "UncorrectedErrors"
    REMAP_FAILURE = "RowRemapFailure"
    REMAP_PENDING = "RowRemapPending"
    MIG = "MigMode"
    FABRIC = "Fabric"
    NVLINK = "NvLink"


LASTING = frozenset({GpuCheck.PCI_FUNCTIONS, GpuCheck.WIDTH, GpuCheck.REMAP_FAILURE, GpuCheck.MIG})
"""Faults that a load of the driver does not clear, so that a validation finds them before and after an upgrade."""


class GpuFault(Struct, frozen=True, kw_only=True):
    """A fault of a GPU: its check, the GPU (`subject` has index and address), the value, and what to do.

    `uuid` is empty for a fault of the node.
    """

    check: GpuCheck
    uuid: str
    subject: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.check}: {self.subject} {self.message}; {self.fix}"


class GpuConnections(Struct, frozen=True, kw_only=True):
    """What the GPUs of a node are connected to.

    `links` are the states of the NVLinks by the UUID of the GPU and the number of the link. `port_widths` are the lanes
    of the PCIe port of each GPU by its address, as far as they are known.
    """

    links: Mapping[str, Mapping[int, str]] = {}
    port_widths: Mapping[str, int] = {}

    def count_active_links(self, uuid: str) -> int:
        """The number of active NVLinks of a GPU."""
        return sum(state != INACTIVE for state in self.links.get(uuid, {}).values())

    @property
    def most_links(self) -> int:
        """The number of active NVLinks of the GPU that has most of them."""
        return max((self.count_active_links(uuid) for uuid in self.links), default=0)


def find_gpu_faults(gpus: Collection[GpuFacts], connections: GpuConnections) -> tuple[GpuFault, ...]:
    """All faults of all GPUs, in the order of their indices."""
    return tuple(
        GpuFault(check=name, uuid=gpu.uuid, subject=f"GPU {index} ({gpu.address})", message=message, fix=fix)
        for index, gpu in enumerate(gpus)
        for name, check in _CHECKS.items()
        for message, fix in check(gpu, connections)
    )


def find_missing_gpus(functions: Iterable[PciDevice], driver_gpus: Collection[str]) -> GpuFault | None:
    """The GPUs on the PCI bus that the driver does not have, by address; None if it has all of them."""
    gpus = [device for device in functions if device.is_gpu and not device.virtual and device.driver in OWN_DRIVERS]
    missing = [f"{gpu.address} ({gpu.driver or 'no driver'})" for gpu in gpus if gpu.address not in driver_gpus]
    if not missing:
        return None
    return GpuFault(
        check=GpuCheck.PCI_FUNCTIONS,
        uuid="",
        subject="the PCI bus",
        message=f"has {len(gpus)} GPU(s), the driver lacks {len(missing)}: {', '.join(missing)}",
        fix="read the messages of the kernel (dmesg, NVRM) and repair the GPU, or bind a GPU that is not to be used to "
        "another driver, such as vfio-pci",
    )


def find_unregistered_gpus(gpus: Iterable[GpuFacts]) -> str:
    """The GPUs that have not joined the NVSwitch fabric yet, which takes a moment after the driver was loaded."""
    waiting = [gpu.address for gpu in gpus if gpu.fabric_state in {"Not Started", "In Progress"}]
    return ", ".join(waiting)


def summarize_gpus(gpus: Collection[GpuFacts], connections: GpuConnections) -> dict[str, str]:
    """Facts for the result: for each reported property, the number of GPUs with each value."""
    values = {
        "model": [gpu.model for gpu in gpus],
        "pcie": [gpu.width for gpu in gpus],
        "mig": [gpu.mig for gpu in gpus],
        "fabric": [gpu.fabric_state for gpu in gpus],
    }
    active = [str(connections.count_active_links(gpu.uuid)) for gpu in gpus if gpu.uuid in connections.links]
    values["active NVLinks"] = active or ["not reported"] * len(gpus)
    counts = {name: Counter(value for value in listed if value) for name, listed in values.items()}
    return {
        name: ", ".join(f"{count} x {value}" for value, count in sorted(counted.items()))
        for name, counted in counts.items()
        if counted
    }


_Faults = Iterator[tuple[str, str]]
_RESET = "reset it or reboot the node"


def _check_width(gpu: GpuFacts, connections: GpuConnections) -> _Faults:
    """Fewer lanes than both the GPU and its port have: GPUs in virtual machines and in narrow slots are no fault.

    Only the width: the generation of the link falls while a GPU is idle, to save power.
    """
    widths = [_WIDTH.fullmatch(text) for text in (gpu.width, gpu.max_width) if text]
    lanes = [int(width[1]) for width in widths if width]
    if len(lanes) < len(widths):
        yield f"reports a PCIe link of {gpu.width!r} of {gpu.max_width!r}", "reboot the node"
    elif len(lanes) == 2 and lanes[0] < (expected := min(lanes[1], connections.port_widths.get(gpu.address, 0))):
        yield f"has {lanes[0]} of {expected} lanes of its PCIe link", "power the node off and on, then reseat the GPU"


def _check_errors(gpu: GpuFacts, _: GpuConnections) -> _Faults:
    counted = {name: value for name, value in gpu.uncorrected.items() if value.strip("0")}
    if counted:
        values = ", ".join(f"{name} {value}" for name, value in sorted(counted.items()))
        yield f"has uncorrected memory errors since the driver was loaded ({values})", _RESET


def _check_remap_failure(gpu: GpuFacts, _: GpuConnections) -> _Faults:
    if gpu.remap_failure not in {"", "No"}:
        yield f"could not replace a defective row of its memory (failure: {gpu.remap_failure})", "replace the GPU"


def _check_remap_pending(gpu: GpuFacts, _: GpuConnections) -> _Faults:
    """Rows, and pages of GPUs before Ampere."""
    if gpu.remap_pending not in {"", "No"}:
        yield f"replaces a defective row of its memory at its reset (pending: {gpu.remap_pending})", _RESET
    if gpu.retirement_pending not in {"", "No"}:
        yield f"retires a defective page of its memory at its reset (pending: {gpu.retirement_pending})", _RESET


def _check_mig(gpu: GpuFacts, _: GpuConnections) -> _Faults:
    if gpu.mig not in {"", "Disabled", "Enabled"}:
        yield f"reports the MIG mode {gpu.mig!r}", "reboot the node"
    elif gpu.mig == "Enabled" and not gpu.mig_devices:
        yield (
            "is in MIG mode and has no partition, so no program can use it",
            "create partitions (nvidia-smi mig -cgi … -C), or disable the mode (nvidia-smi -mig 0)",
        )


def _check_fabric(gpu: GpuFacts, _: GpuConnections) -> _Faults:
    if gpu.fabric_state and (gpu.fabric_state != "Completed" or gpu.fabric_status not in {"", "Success"}):
        yield (
            f"is not part of the NVSwitch fabric (state {gpu.fabric_state}, status {gpu.fabric_status or 'none'})",
            "check nvidia-fabricmanager, whose version must be that of the driver",
        )


def _check_nvlink(gpu: GpuFacts, connections: GpuConnections) -> _Faults:
    """In a fabric every link is active. GPUs that bridges connect have no active link, or as many as each other.

    MIG mode may switch the links of a GPU off, and so may a hypervisor that gives a virtual machine one GPU.
    """
    states = connections.links.get(gpu.uuid)
    if states is None or gpu.mig == "Enabled" or len(connections.links) == 1:
        return
    active = connections.count_active_links(gpu.uuid)
    expected = max(len(states), connections.most_links, 1) if gpu.fabric_state else connections.most_links
    if active < expected and (active or gpu.fabric_state):
        inactive = ", ".join(str(number) for number, state in sorted(states.items()) if state == INACTIVE) or "all"
        yield (
            f"has {active} active NVLink(s), expected are {expected} (inactive: {inactive})",
            "reset all GPUs of the node or reboot it",
        )


_CHECKS: Mapping[GpuCheck, Callable[[GpuFacts, GpuConnections], _Faults]] = {
    GpuCheck.WIDTH: _check_width,
    GpuCheck.ECC: _check_errors,
    GpuCheck.REMAP_FAILURE: _check_remap_failure,
    GpuCheck.REMAP_PENDING: _check_remap_pending,
    GpuCheck.MIG: _check_mig,
    GpuCheck.FABRIC: _check_fabric,
    GpuCheck.NVLINK: _check_nvlink,
}
