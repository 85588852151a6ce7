"""Check of the fabric manager, which configures the NVSwitches of a node.

Until a fabric manager of the driver's version has configured the switches, CUDA programs fail with error 802, while
nvidia-smi works. Hopper and later GPUs report the state of the fabric. Ampere GPUs report N/A also while the fabric
manager runs (bottlerocket-os/bottlerocket#3873); for them only the record of the service is known.
"""

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.driver_services import DriverService
from upgrader.node.driver.loaded_driver import LoadedDriver
from upgrader.node.validation.gpu_report import GpuFacts

FRESH_SECONDS = 60.0
"""The longest age of the record of a running service, which `service` of the driver image renews every 5 s."""

SERVICE = DriverService.FABRIC_MANAGER


class ServiceRecord(Struct, frozen=True, kw_only=True):
    """The record of a service of the driver, RUN_DIRECTORY/<vendor>/services/<service>.json."""

    version: str
    state: str
    reason: str = ""


def count_switches(proc: Path) -> int:
    """The NVSwitches of the loaded driver."""
    folder = proc / "driver" / "nvidia-nvswitch" / "devices"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def find_manager_fault(run: Path, present: LoadedDriver, gpus: Iterable[GpuFacts]) -> str:
    """Why the NVSwitches of a node with GPUs cannot be configured; empty if there is no fault.

    The state of the fabric on each GPU is a check of the GPU (gpu_checks). A GPU that reports none needs a fabric
    manager of the driver image.

    Args:
        run: RUN_DIRECTORY of the node.
        present: the loaded driver.
        gpus: all GPUs of the driver.
    """
    if SERVICE in present.services:
        return _find_service_fault(run / present.vendor / "services" / f"{SERVICE}.json", present)
    silent = [gpu.address for gpu in gpus if not gpu.fabric_state]
    if silent:
        return f"the driver image contains no fabric manager, and {', '.join(silent)} report no state of the fabric"
    return ""


def _find_service_fault(file: Path, present: LoadedDriver) -> str:
    try:
        record = msgspec.json.decode(file.read_bytes(), type=ServiceRecord)
        age = abs(time.time() - file.stat().st_mtime)
    except (OSError, msgspec.MsgspecError) as error:
        return f"the fabric manager has no record on the node: {error}"
    if record.state != "Running":
        return f"the fabric manager is {record.state}: {record.reason}"
    if record.version != present.version:
        return f"a fabric manager of version {record.version} runs, the driver has {present.version}"
    return f"the fabric manager has not renewed its record for {age:.0f} s" if age > FRESH_SECONDS else ""
