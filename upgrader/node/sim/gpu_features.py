"""Feature discovery of simulated devices: what the record of the loaded driver says, as a report of this boot."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from upgrader.core.node_protocol.gpu_features import GpuReport
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.devices import VENDOR
from upgrader.node.driver.loaded_driver import loaded
from upgrader.node.host import atomic_file
from upgrader.node.host.task_result import OrderFailedError

DONE = "gpu-features.json"
"""In RUN_DIRECTORY: the report, for operands that come up after this one."""

EVERY_SECONDS = 10.0


def read_gpus(run: Path, *, driver: str, count: int, uptime: Path = Path("/proc/uptime")) -> GpuReport:
    """A report of the driver that is loaded.

    Args:
        run: the node's RUN_DIRECTORY.
        driver: vendor of the driver on which devices are simulated.
        count: of devices where that is a real one; the simulated one's record says how many it has.
        uptime: the machine's.

    Raises:
        OrderFailedError: none is loaded, or its record cannot be read.
    """
    found = loaded(run, driver)
    if found is None:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"no driver of {driver} is loaded")
    try:
        return msgspec.convert(
            {
                "bootId": found.boot_id,
                "uptime": float(uptime.read_text(encoding="utf-8").split()[0]),
                "version": found.version,
                "devices": found.devices if driver == VENDOR else count,
            },
            GpuReport,
        )
    except (msgspec.ValidationError, ValueError, IndexError) as error:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"the loaded driver cannot be told of: {error}") from error


def leave_done(run: Path, report: GpuReport) -> None:
    """Let the operands after this one start."""
    atomic_file.put(run / DONE, msgspec.json.encode(report))


def changed_gpus(read: Callable[[], GpuReport], wait: Callable[[float], None]) -> GpuReport:
    """Rest until another driver is loaded, or another number of devices is there; then what is so.

    Raises:
        OrderFailedError: no driver is loaded any more.
    """
    before = read()
    while (now := read()).version == before.version and now.devices == before.devices:
        wait(EVERY_SECONDS)
    return now
