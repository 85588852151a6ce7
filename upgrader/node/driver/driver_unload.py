"""Unloading the driver that is loaded on a node.

A driver image writes its own `unload` beside the record of the loaded driver (loaded_driver.py), so the driver can be
unloaded without its image.
"""

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Driver, Reason
from upgrader.node.driver.loaded_driver import read_loaded_driver
from upgrader.node.host.clock import Clock, poll_until_no_fault
from upgrader.node.host.host import Host
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import EXIT_CODES, OrderFailedError

UNLOAD_SECONDS = 60.0
BUSY_POLL_SECONDS = 2.0


def unload_driver(host: Host, driver: Driver, programs: Programs, clock: Clock, *, patience: float) -> str:
    """Unload a driver if it is loaded; returns a summary for the result.

    A driver without a version means any version. Waits up to `patience` seconds for processes that use a device; it
    ends no process.

    Raises:
        OrderFailedError: BUSY, with PIDs and names of processes; or `unload` of the driver failed.
    """
    present = read_loaded_driver(host.run, driver.vendor)
    if present is None:
        return f"{driver.vendor} {driver.version or 'driver'} was not loaded"
    if driver.version not in {"", present.version}:
        return f"{driver.vendor} {driver.version} was not loaded; {present.version} is"
    name = f"{driver.vendor} {present.version}"
    holders = poll_until_no_fault(
        lambda: _run_unload(host, driver.vendor, name, programs), clock=clock, seconds=patience, every=BUSY_POLL_SECONDS
    )
    if holders:
        raise OrderFailedError(Reason.BUSY, f"{name} is in use: {holders}")
    return f"{name} unloaded" + (" (simulated)" if present.simulated else "")


def _run_unload(host: Host, vendor: str, name: str, programs: Programs) -> str:
    """The processes that use the driver; empty when it is unloaded."""
    try:
        ended = programs.run(["/bin/sh", str(host.run / vendor / "unload")], seconds=UNLOAD_SECONDS)
    except ProcessError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{name} cannot be unloaded: {error}") from error
    output = " ".join(ended.output.split())
    if ended.code == EXIT_CODES[Reason.BUSY]:
        return output or "unknown processes"
    if ended.code != 0:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"`unload` of {name} ended with exit code {ended.code}: {output}")
    return ""
