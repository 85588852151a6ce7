"""Feature discovery of simulated devices: the record of the loaded driver as a report of this boot."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from upgrader.core.node_protocol.gpu_features import GpuReport
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.loaded_driver import read_loaded_driver
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.devices import VENDOR
from upgrader.process import atomic_file

REPORT_FILE = "gpu-features.json"
"""File in RUN_DIRECTORY with the report, for operands that start after this one."""

POLL_SECONDS = 10.0


def read_gpus(run: Path, *, driver: str, count: int, uptime: Path = Path("/proc/uptime")) -> GpuReport:
    """A report of the loaded driver.

    Args:
        run: RUN_DIRECTORY of the node.
        driver: vendor of the loaded driver.
        count: number of devices with a real driver; the record of a simulated driver has its number.
        uptime: file with the uptime of the machine.

    Raises:
        OrderFailedError: no driver is loaded, or its record is invalid.
    """
    driver_record = read_loaded_driver(run, driver)
    if driver_record is None:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"no driver of {driver} is loaded")
    try:
        return msgspec.convert(
            {
                "bootId": driver_record.boot_id,
                "uptime": float(uptime.read_text(encoding="utf-8").split()[0]),
                "version": driver_record.version,
                "devices": driver_record.devices if driver == VENDOR else count,
            },
            GpuReport,
        )
    except (msgspec.ValidationError, ValueError, IndexError) as error:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"the record of the loaded driver is invalid: {error}"
        ) from error


def write_report(run: Path, report: GpuReport) -> None:
    """Write the report, which lets later operands start."""
    atomic_file.write_file(run / REPORT_FILE, msgspec.json.encode(report))


def wait_for_changed_gpus(read: Callable[[], GpuReport], wait: Callable[[float], None]) -> GpuReport:
    """Wait until the version of the driver or the number of devices changes; returns the new report.

    Raises:
        OrderFailedError: no driver is loaded any more.
    """
    before = read()
    while (now := read()).version == before.version and now.devices == before.devices:
        wait(POLL_SECONDS)
    return now
